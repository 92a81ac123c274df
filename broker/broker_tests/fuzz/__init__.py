"""Coverage-guided fuzzing of what reads bytes of others: `make fuzz TARGET=requests MINUTES=5`.

targets     functions from bytes to nothing; each says which errors are an answer
__main__    runs one of them with atheris (libFuzzer), or all for their share of the time
"""
