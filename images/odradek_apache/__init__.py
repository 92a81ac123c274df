"""The program that runs Apache Kafka in the image of engine `apache`."""
