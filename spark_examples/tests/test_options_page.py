"""docs/spark.md has every option of Spark's source, as the connector itself names them."""

import re
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "jars" / "spark_examples" / "flights"
PROVIDER = "org/apache/spark/sql/kafka010/KafkaSourceProvider$.class"
# The connector compares options in small letters. Its class has other texts, too; those of Kafka's consumer have dots.
OPTION = rb"\x01\0[\x06-\x28]((?:starting|ending|max|min|failon|include|groupid|subscribe|assign)[a-z]*|(?:fetchoffset|kafkaconsumer)\.[a-z]+)"


def test_every_option_of_the_source_is_explained() -> None:
    jars = list(JARS.glob("spark-sql-kafka-*.jar"))
    if not jars:
        pytest.skip("Spark's connector is not on this machine (`make setup` brings it)")
    options = {each.decode() for each in re.findall(OPTION, zipfile.ZipFile(jars[0]).read(PROVIDER))}
    assert len(options) > 15, options
    told = (ROOT / "docs" / "spark.md").read_text().lower()
    assert {option for option in options if f"`{option}" not in told} == set()
