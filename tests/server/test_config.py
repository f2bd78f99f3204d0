"""Sources of settings: flags win over the environment, that over the file and the defaults."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import pytest

from sparkport.auth import Grant, Mask, RowFilter
from sparkport.catalog import Identity, Privilege
from sparkport.cli.assembly import server_settings
from sparkport.cli.commands import parser
from sparkport.config import (
    SETTINGS,
    Config,
    example_toml,
    load_config,
    settings_markdown,
    value_of,
)
from sparkport.errors import BadRequest
from sparkport.memory import MemorySettings
from sparkport.server import ServerSettings
from sparkport.settings import Setting
from sparkport.spark import LakeSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


@pytest.mark.parametrize(
    "given", [set(each) for size in (1, 2, 3) for each in itertools.combinations(LOCATION, size)]
)
def test_the_source_closest_to_the_user_wins(toml, given):
    flags = {"location": LOCATION["flag"] if "flag" in given else None}
    environment = {"SPARKPORT_LOCATION": LOCATION["environment"]} if "environment" in given else {}
    file = toml(f'location = "{LOCATION["file"]}"') if "file" in given else None

    config = load_config(flags, environment, file)

    assert config.location == next(LOCATION[source] for source in LOCATION if source in given)


def test_sources_are_combined(toml):
    file = toml('max_calls = 5\nlog_level = "debug"\nstrict_create_schema = true')

    config = load_config({"log_level": "error"}, {"SPARKPORT_MAX_CALLS": "7"}, file)

    server = ServerSettings(max_calls=7, strict_create_schema=True)
    assert config == Config(log_level="error", server=server)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_every_setting_is_a_line_a_variable_and_a_flag(toml, setting):
    text, line, value = _sample(setting)
    of_a_lake = setting.name in ("catalog_options", "secrets_file")
    given = {"SPARKPORT_WAREHOUSE": "lake"} if of_a_lake else {}
    expected = load_config({}, given, toml(f"{setting.name} = {line}"))

    assert value_of(expected, setting) == value != value_of(Config(), setting)
    assert load_config({}, {**given, setting.variable: text}) == expected
    on, off = [setting.flag], [setting.flag.replace("--", "--no-", 1)]
    flags = on if value is True else off if value is False else [setting.flag, text]
    options = parser().parse_args(["serve", *flags])
    assert load_config(vars(options), given) == expected
    if isinstance(value, bool):
        options = parser().parse_args(["serve", *(off if value else on)])
        assert load_config(vars(options), {}, toml(f"{setting.name} = {line}")) == Config()


@pytest.mark.parametrize(
    ("described", "part", "in_python_only"),
    [
        (ServerSettings, "server", {"authenticate", "policy", "secret"}),
        (LakeSettings, "lake", set()),
        (MemorySettings, "memory", {"now", "monotonic"}),
    ],
)
def test_no_field_is_forgotten(described, part, in_python_only):
    """All of it comes from the fields: a new one in its class is a flag, a variable and a line."""
    names = {each.name for each in dataclasses.fields(described)}

    assert {each.field for each in SETTINGS if each.part == part} == names - in_python_only
    assert [each for each in names if dataclasses.is_dataclass(getattr(described(), each))] == []


def test_no_two_settings_have_one_name():
    assert len({each.name for each in SETTINGS}) == len(SETTINGS)


def test_bytes_of_a_field_are_megabytes_of_a_setting(toml):
    file = toml("lake_in_place_mb = 0\nlake_update_mb_in_place = 3\nmax_held_mb = 2")
    megabyte = 1024 * 1024

    config = load_config({}, {}, file)

    assert config.lake == LakeSettings(in_place_bytes=0, update_bytes_in_place=3 * megabyte)
    assert config.server == ServerSettings(max_held_bytes=2 * megabyte)


def test_what_may_be_none_is_zero_or_empty():
    environment = {
        "SPARKPORT_MEMORY_MAX_VERSIONS": "0",
        "SPARKPORT_LAKE_STAGING": "",
        "SPARKPORT_TLS_KEY": "",
    }

    config = load_config({}, environment)

    assert config == Config(memory=MemorySettings(max_versions=None))


def _sample(setting: Setting) -> tuple[str, str, object]:
    """A value other than the default: as text, in TOML, in Python."""
    if setting.choices:
        return setting.choices[-1], f'"{setting.choices[-1]}"', setting.choices[-1]
    if setting.kind is bool:
        value = not setting.default
        return str(value).lower(), str(value).lower(), value
    if setting.kind in (int, float):
        number = 8 if setting.default == 7 * setting.unit else 7
        return str(number), str(number), number * setting.unit
    if setting.kind is tuple:
        return "a,b", '["a", "b"]', ("a", "b")
    if setting.kind is dict:
        return "a=b", '{ a = "b" }', {"a": "b"}
    return "grpc+tls:/x:1", '"grpc+tls:/x:1"', setting.kind("grpc+tls:/x:1")


def test_listen_is_short_for_a_location_in_every_source(toml):
    file = toml('listen = "file:1"')

    assert load_config({}, {}, file).location == "grpc://file:1"
    assert (
        load_config({}, {"SPARKPORT_LISTEN": "environment:1"}, file).location
        == "grpc://environment:1"
    )
    assert (
        load_config({"location": "grpc+tls://flag:1"}, {"SPARKPORT_LISTEN": "x:1"}).location
        == "grpc+tls://flag:1"
    )
    assert (
        load_config({"listen": "flag:1"}, {"SPARKPORT_LOCATION": "grpc://x:1"}).location
        == "grpc://flag:1"
    )


def test_settings_of_spark_are_pairs_and_in_a_file_a_table(toml):
    expected = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "7",
        "spark.x": "a b=c",
    }
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
    assert load_config({}, {"SPARKPORT_STRICT_CREATE_SCHEMA": text}).server == ServerSettings(
        strict_create_schema=value
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense = 1", "line 1: there is no setting 'nonsense'; `sparkport config` lists them"),
        (
            "demo = true\nmax_call = 1",
            "line 2: there is no setting 'max_call'; did you mean max_calls?",
        ),
        ("[row_filter]", "line 1: there is no setting 'row_filter'; did you mean row_filters?"),
        ("Token_File = 'x'", "there is no setting 'Token_File'; did you mean tokens_file?"),
        ("log_level = 'loud'", "log_level must be debug, info, warning or error, not 'loud'"),
        ("stop_seconds = nan", "stop_seconds must be a number"),
        ("stop_seconds = -1", "stop_seconds must be at least 0"),
        ("max_scans = -1", "max_scans must be at least 0"),
        ("jwt_attributes = 7", "jwt_attributes must be a list of texts"),
        ("jwt_attributes = ['a', 7]", "jwt_attributes must be a list of texts"),
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
        ("TOKEN_FILE", "tokens", "did you mean SPARKPORT_TOKENS_FILE?"),
        ("MAX_CALL", "7", "did you mean SPARKPORT_MAX_CALLS?"),
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


def test_variables_of_others_do_not_matter():
    """Kubernetes makes them up for a service called sparkport."""
    others = {
        "SPARKPORT_SERVICE_HOST": "10.0.0.1",
        "SPARKPORT_PORT": "tcp://10.0.0.1:80",
        "SPARKPORT_JARS": "/jars",
    }

    assert load_config({}, others) == Config()


def test_listen_is_encrypted_where_there_is_a_certificate(toml):
    file = toml('listen = "file:1"')
    encrypted = {"tls_certificate": "tls.crt"}

    assert load_config(encrypted, {}, file).location == "grpc+tls://file:1"
    assert load_config(encrypted, {}).location == "grpc+tls://127.0.0.1:50051"
    assert load_config({**encrypted, "location": "grpc://flag:1"}, {}).location == "grpc://flag:1"


def test_lists_are_written_with_commas_or_as_lists(toml):
    assert load_config({}, {}, toml('jwt_attributes = ["region", "team"]')).jwt_attributes == (
        "region",
        "team",
    )
    assert load_config({}, {"SPARKPORT_JWT_ATTRIBUTES": "region, team"}).jwt_attributes == (
        "region",
        "team",
    )
    assert load_config({"jwt_attributes": ["region", "team"]}, {}).jwt_attributes == (
        "region",
        "team",
    )


def test_seconds_need_not_be_whole():
    assert load_config({"stop_seconds": "0.5"}, {}).server.stop_seconds == 0.5
    assert load_config({}, {"SPARKPORT_IDLE_SECONDS": "0"}).server.idle_seconds == 0


RULES = """
admins = "group:operators"

[[grants]]
to = "ada"
on = "lake.sales"
may = ["read", "WRITE"]

[[grants]]
to = ["group:analysts", "*"]
on = "lake.*.orders"
may = "list"

[[row_filters]]
on = "lake.sales.orders"
rows = "region = $region OR list_contains($groups, 'all')"
but = "ada"

[[masks]]
on = "lake.sales.customers"
column = "email"
value = "'$' || $principal"

[[masks]]
on = "lake.sales.customers"
column = "phone"
"""


def test_rules_become_a_policy(toml):
    config = load_config({}, {}, toml(RULES))

    assert config.grants == (
        Grant(("ada",), "lake.sales", (Privilege.READ, Privilege.WRITE)),
        Grant(("group:analysts", "*"), "lake.*.orders", (Privilege.LIST,)),
    )
    condition = "region = $region OR list_contains($groups, 'all')"
    assert config.row_filters == (RowFilter("lake.sales.orders", condition, ("*",), ("ada",)),)
    assert config.masks == (
        Mask("lake.sales.customers", "email", "'$' || $principal"),
        Mask("lake.sales.customers", "phone", "NULL"),
    )
    assert config.policy is not None
    access = config.policy.access(Identity("ada"), "lake")
    assert access.may(Privilege.WRITE, "sales", "orders")
    assert not access.may(Privilege.ALTER, "sales", "orders")
    assert config.policy.is_admin(Identity("bob", frozenset({"operators"})))


def test_without_rules_there_is_no_policy_and_without_grants_everything_is_allowed(toml):
    assert load_config({}, {}, toml("demo = true")).policy is None
    policy = load_config({}, {}, toml('admins = ["ada"]')).policy
    assert policy is not None
    assert policy.access(None, "lake").may(Privilege.ALTER, "s", "t")
    nothing = load_config({}, {}, toml("grants = []")).policy
    assert nothing is not None
    assert not nothing.access(Identity("ada"), "lake").sees_catalog()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "\n[[grants]]\nto = 'a'\non = 'x'\nmay = ['reed']",
            "line 2, grants 1: there is no privilege 'reed'; did you mean read?",
        ),
        (
            "[[grants]]\nto = 'a'\non = 'x'\nmay = 'fly'",
            "there are list, read, write, alter, spark_sql",
        ),
        ("[[grants]]\nto = 'a'\non = 'x'", "grants 1: may is missing"),
        ("[[grants]]\non = 'x'\nmay = 'read'", "grants 1: to is missing"),
        ("[[grants]]\nto = 7\non = 'x'\nmay = 'read'", "to must be text or a list of texts, not 7"),
        ("[[grants]]\nto = ['']\non = 'x'\nmay = 'read'", "to must be text or a list of texts"),
        (
            "[[grants]]\nto = 'a'\non = '.a'\nmay = 'read'",
            "on must be catalog, catalog.schema or catalog.schema.object",
        ),
        ("[[grants]]\nto = 'a'\non = 'a..b'\nmay = 'read'", "on must be catalog"),
        ("[[grants]]\nwho = 'a'", "grants 1: there is no 'who'; there are to, on, may"),
        ("[grants]\nto = 'a'", "grants must be a list of tables: begin each with [[grants]]"),
        (
            "[[row_filters]]\non = 'x'\nrow = 'true'",
            "row_filters 1: there is no 'row'; did you mean rows?",
        ),
        ("[[row_filters]]\non = 'x'\nrows = 'a ='", "rows is not an SQL expression"),
        ("[[row_filters]]\non = 'x'\nrows = 'true; DROP TABLE t'", "rows is not an SQL expression"),
        ("[[row_filters]]\non = 'x'\nrows = '(SELECT 1)'", "rows cannot be used"),
        ("[[masks]]\non = 'x'\nvalue = '1'", "masks 1: column is missing"),
        (
            "[[masks]]\non = 'x.s.t'\ncolumn = 'pay'\n[[masks]]\non = 'x.S.t'\ncolumn = 'Pay'",
            "the masks on x.S.t spell one column in two ways: pay and Pay",
        ),
        (
            "[[masks]]\non = 'x'\ncolumn = 'c'\n[[masks]]\non = 'x'\ncolumn = 'c'\nvalue = ')'",
            "line 4, masks 2: value",
        ),
    ],
)
def test_a_wrong_rule_is_named_with_its_place(toml, content, said):
    with pytest.raises(BadRequest, match=r"sparkport\.toml") as caught:
        load_config({}, {}, toml(content))

    assert said in caught.value.message


def test_the_example_explains_every_setting_and_is_valid_when_uncommented(toml):
    text = example_toml()
    uncommented = [
        line[2:] for line in text.splitlines() if line.startswith("# ") and _is_toml(line[2:])
    ]
    values = tomllib.loads("\n".join(uncommented))

    assert tomllib.loads(text) == {}
    assert values.keys() == {*(each.name for each in SETTINGS), "grants", "row_filters", "masks"}
    config = load_config({}, {}, toml("\n".join(uncommented)))
    assert config.server.max_calls == ServerSettings().max_calls
    assert config.spark_conf == {"spark.driver.memory": "4g"}


def _is_toml(line: str) -> bool:
    return line.startswith("[[") or " = " in line


def test_the_reference_has_every_setting():
    text = settings_markdown()

    assert [each.name for each in SETTINGS if f"| `{each.name}` |" not in text] == []
    assert all(
        line.count("|") - line.count("\\|") == 4
        for line in text.splitlines()
        if line.startswith("|")
    )


def test_defaults_are_those_of_the_server_in_python():
    assert server_settings(Config()) == ServerSettings()
