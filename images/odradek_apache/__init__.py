"""What the image of engine `apache` runs beside Apache Kafka itself."""
