"""Where settings come from: flags win over the environment, that over the file, that over the defaults."""

from __future__ import annotations

import itertools

import pytest

from sparkport.config import Config, load_config
from sparkport.errors import BadRequest

LOCATION = {"flag": "grpc://flag:1", "environment": "grpc://environment:1", "file": "grpc://file:1"}


@pytest.fixture
def toml(tmp_path):
    def write(text: str):
        file = tmp_path / "sparkport.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_without_any_source_there_are_defaults():
    assert load_config({}, {}) == Config()
    assert load_config({"location": None, "unrelated": 1}, {"PATH": "/bin"}) == Config()


@pytest.mark.parametrize("given", [set(each) for size in (1, 2, 3) for each in itertools.combinations(LOCATION, size)])
def test_the_source_closest_to_the_user_wins(toml, given):
    flags = {"location": LOCATION["flag"] if "flag" in given else None}
    environment = {"SPARKPORT_LOCATION": LOCATION["environment"]} if "environment" in given else {}
    file = toml(f'location = "{LOCATION["file"]}"') if "file" in given else None

    config = load_config(flags, environment, file)

    assert config.location == next(LOCATION[source] for source in LOCATION if source in given)


def test_sources_are_combined(toml):
    file = toml('max_calls = 5\nlog_level = "debug"\nstrict_create_schema = true')

    config = load_config({"log_level": "error"}, {"SPARKPORT_MAX_CALLS": "7"}, file)

    assert config == Config(max_calls=7, log_level="error", strict_create_schema=True)


def test_listen_is_short_for_a_location_in_every_source(toml):
    file = toml('listen = "file:1"')

    assert load_config({}, {}, file).location == "grpc://file:1"
    assert load_config({}, {"SPARKPORT_LISTEN": "environment:1"}, file).location == "grpc://environment:1"
    assert load_config({"location": "grpc+tls://flag:1"}, {"SPARKPORT_LISTEN": "x:1"}).location == "grpc+tls://flag:1"
    assert load_config({"listen": "flag:1"}, {"SPARKPORT_LOCATION": "grpc://x:1"}).location == "grpc://flag:1"


def test_settings_of_spark_are_pairs_and_in_a_file_a_table(toml):
    expected = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "7", "spark.x": "a b=c"}
    file = toml(
        """
        [spark_conf]
        "spark.driver.memory" = "2g"
        spark.sql.shuffle.partitions = 7
        spark.x = "a b=c"
        """
    )
    pairs = ["spark.driver.memory=2g", "spark.sql.shuffle.partitions=7", "spark.x=a b=c"]

    assert load_config({}, {}, file).spark_conf == expected
    assert load_config({"spark_conf": pairs}, {}).spark_conf == expected
    text = "spark.driver.memory=2g spark.sql.shuffle.partitions=7 'spark.x=a b=c'"
    assert load_config({}, {"SPARKPORT_SPARK_CONF": text}).spark_conf == expected


@pytest.mark.parametrize("value", [True, "true"])
def test_switches_of_spark_in_a_file_are_words_of_spark(toml, value):
    text = "true" if value is True else '"true"'

    assert load_config({}, {}, toml(f"[spark_conf]\nspark.speculation = {text}")).spark_conf == {
        "spark.speculation": "true"
    }


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("YES", True), ("false", False), ("0", False)]
)
def test_a_switch_in_the_environment_is_a_word(text, value):
    assert load_config({}, {"SPARKPORT_STRICT_CREATE_SCHEMA": text}).strict_create_schema is value


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense = 1", "there is no setting 'nonsense'; the settings are location"),
        ("max_calls = 'many'", "max_calls must be a whole number"),
        ("max_calls = 2.5", "max_calls must be a whole number"),
        ("max_calls = true", "max_calls must be a whole number"),
        ("max_calls = 0", "max_calls must be at least 1"),
        ("location = 1", "location must be text"),
        ("strict_create_schema = 'maybe'", "strict_create_schema must be true or false"),
        ("location = ", "is not valid TOML"),
        ("[location]", "location must be text"),
        ("listen = 50051", "listen must be text of the form HOST:PORT"),
        ("listen = 'a:1'\nlocation = 'grpc://a:1'", "takes the place of location"),
        ("spark_conf = 'nonsense'", "spark_conf must be of the form KEY=VALUE"),
        ("spark_conf = 7", "spark_conf must be of the form KEY=VALUE"),
        ("[spark_conf]\nspark.x = [1]", "spark.x in spark_conf must be text"),
        ("demo = 'perhaps'", "demo must be true or false"),
    ],
)
def test_a_wrong_setting_in_the_file_is_named_with_the_file(toml, content, said):
    with pytest.raises(BadRequest, match=r"sparkport\.toml") as caught:
        load_config({}, {}, toml(content))

    assert said in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("MAX_CALLS", "many", "max_calls must be a whole number"),
        ("MAX_CALLS", "-1", "max_calls must be at least 1"),
        ("STRICT_CREATE_SCHEMA", "", "strict_create_schema must be true or false"),
    ],
)
def test_a_wrong_setting_in_the_environment_is_named_with_its_variable(name, text, said):
    with pytest.raises(BadRequest, match=f"SPARKPORT_{name}") as caught:
        load_config({}, {f"SPARKPORT_{name}": text})

    assert said in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadRequest, match=r"missing\.toml cannot be read"):
        load_config({}, {}, tmp_path / "missing.toml")


def test_a_file_that_is_no_text_is_named(tmp_path):
    file = tmp_path / "binary.toml"
    file.write_bytes(b"\xff\xfe\0")

    with pytest.raises(BadRequest, match=r"binary\.toml is not valid TOML"):
        load_config({}, {}, file)
