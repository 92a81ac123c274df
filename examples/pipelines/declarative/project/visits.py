"""From the topic visits to a table, and visits of the blog to a topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek_spark.project import kafka_options

spark = SparkSession.active()

dp.create_sink("blog_topic", "kafka", {**kafka_options(), "topic": "blog-visits"})


@dp.table
def visits() -> DataFrame:
    """Every visit once, also after a crash."""
    reader = spark.readStream.format("kafka").options(**kafka_options())
    records = reader.option("subscribe", "visits").option("startingOffsets", "earliest").load()
    visit = f.from_json(f.col("value").cast("string"), "visitor STRING, page STRING, at TIMESTAMP")
    return records.select(visit.alias("visit")).where("visit.page IS NOT NULL").select("visit.*")


@dp.append_flow(target="blog_topic", name="blog_visits")
def blog_visits() -> DataFrame:
    """Visits of the blog, as records."""
    blog = spark.readStream.table("visits").where("page = '/blog'")
    return blog.select(f.col("visitor").alias("key"), f.to_json(f.struct("*")).alias("value"))
