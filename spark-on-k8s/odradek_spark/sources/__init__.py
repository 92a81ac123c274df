"""Where records come from: topics, directories, or a clock. Thin: options in, a DataFrame out."""
