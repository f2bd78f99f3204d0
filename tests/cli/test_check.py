"""`sparkport check`: what it finds and says. The tests of Spark have the rest."""

from __future__ import annotations

import datetime
import sqlite3

import pytest
from tests.server.certificates import Authority

from sparkport.auth.token_file import create_token, revoke_tokens

CATALOG = """
import pyarrow as pa
from sparkport import CatalogBuilder
print("imported")
catalog = CatalogBuilder("shop")
catalog.schema("sales").table("t", pa.table({"id": [1]}))
def who(token):
    return "ada" if token == "secret" else None
number = 7
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with everything that a server may need."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company.py").write_text(CATALOG)
    Authority().sign().write(tmp_path)
    (tmp_path / "secret").write_bytes(b"x" * 32)
    (tmp_path / "secret").chmod(0o600)
    create_token(tmp_path / "tokens", "ada")
    return tmp_path


CONFIG = """
listen = "0.0.0.0:50051"
tls_certificate = "tls.crt"
tls_key = "tls.key"
tokens_file = "tokens"
authenticator = "company.py:who"
secret_file = "secret"
audit_file = "audit.jsonl"

[[grants]]
to = "ada"
on = "shop.sales"
may = "read"
"""


def findings(ran) -> dict[str, str]:
    """The findings that are wrong, by subject."""
    lines = ran.out.splitlines()
    assert all(line[0] in "✓!✗" for line in lines), ran
    wrong = dict(line[2:].split(": ", 1) for line in lines if line.startswith("✗"))
    assert ran.code == (1 if wrong else 0)
    return wrong


def test_a_good_configuration_is_good_in_every_respect(run, folder):
    (folder / "sparkport.toml").write_text(CONFIG)

    ran = run("check", "--config", "sparkport.toml", "company.py:catalog")

    assert findings(ran) == {}
    said = dict(line[2:].split(": ", 1) for line in ran.out.splitlines())
    assert (
        said["configuration"] == "serves whoever has a token on grpc+tls://0.0.0.0:50051, encrypted"
    )
    assert said["certificate"].startswith("tls.crt and tls.key are a pair, valid until 20")
    assert said["tokens"] == "tokens has 1 tokens"
    assert said["catalogs"] == "shop has 1 schemas"
    assert said["permissions"] == "1 grants"
    assert said.keys() == {
        *(
            "configuration",
            "certificate",
            "tokens",
            "authenticator",
            "secret_file",
            "audit_file",
            "catalogs",
            "permissions",
        )
    }
    assert not (folder / "audit.jsonl").exists()


def test_everything_that_is_wrong_is_said_at_once(run, folder):
    (folder / "sparkport.toml").write_text(CONFIG.replace("shop.sales", "shops.sales"))
    revoke_tokens(folder / "tokens", "ada")
    Authority().sign("other").write(folder, "other")
    (folder / "other.crt").rename(folder / "tls.crt")
    (folder / "secret").write_bytes(b"x")
    flags = (
        "--authenticator",
        "company.py:number",
        "--audit-file",
        "missing/audit",
        "--http",
        "0.0.0.0:80",
    )

    wrong = findings(run("check", "--config", "sparkport.toml", "company.py:catalog", *flags))

    assert "status page" in wrong["configuration"]
    assert "are no pair" in wrong["certificate"]
    assert "no token that is valid" in wrong["tokens"]
    assert "no function called 'number'" in wrong["authenticator"]
    assert "can be guessed" in wrong["secret_file"]
    assert "cannot be written" in wrong["audit_file"]
    assert wrong["permissions"] == "grants 1: there is no catalog 'shops'; did you mean shop?"


@pytest.mark.parametrize(
    ("arguments", "about", "said"),
    [
        (["--demo", "--max-calls", "many"], "configuration", "max_calls must be a whole number"),
        (["--demo", "--location", "http://x"], "configuration", "grpc://host:port"),
        (["--demo", "--listen", "0.0.0.0:1"], "configuration", "others can reach 0.0.0.0"),
        ([], "catalogs", "name a catalog to serve"),
        (["company.py:missing"], "catalogs", "no CatalogBuilder or Catalog called 'missing'"),
        (["missing.py:catalog"], "catalogs", "missing.py cannot be imported"),
        (["--demo", "--tokens-file", "missing"], "tokens", "missing cannot be read"),
        (
            [
                "--demo",
                "--jwks-url",
                "http://127.0.0.1:1/",
                "--jwt-issuer",
                "i",
                "--jwt-audience",
                "a",
            ],
            "keys",
            "refused",
        ),
        (["--demo", "--jwks-url", "https://127.0.0.1:1/"], "keys", "jwt_issuer and jwt_audience"),
        (["--warehouse", "company.py"], "warehouse", "is not a folder"),
        (["--warehouse", "company.py/lake"], "warehouse", "cannot be made"),
    ],
)
def test_one_thing_that_is_wrong(run, folder, arguments, about, said):
    wrong = findings(run("check", *arguments))

    assert wrong.keys() == {about}
    assert said in wrong[about]


def test_a_certificate_that_has_expired_is_found(run, folder):
    Authority().sign(lasts=datetime.timedelta(days=-2)).write(folder)

    wrong = findings(run("check", "--demo", "--tls-certificate", "tls.crt", "--tls-key", "tls.key"))

    assert "has expired on" in wrong["certificate"]


def test_a_warehouse_is_looked_at_without_spark_and_left_alone(run, folder, monkeypatch):
    monkeypatch.setenv("SPARKPORT_JARS", str(folder / "jars"))
    assert "lake will be made" in run("check", "--warehouse", "lake").out
    assert not (folder / "lake").exists()
    (folder / "lake").mkdir()
    ran = run("check", "--warehouse", "lake")
    assert "holds nothing yet" in ran.out
    assert "will be fetched from Maven" in ran.out
    assert not (folder / "jars").exists()

    with sqlite3.connect(folder / "lake" / "catalog.db") as database:
        database.execute("CREATE TABLE iceberg_tables (nonsense)")
    database.close()
    assert "is not one of Iceberg" in findings(run("check", "--warehouse", "lake"))["warehouse"]


def test_java_that_is_missing_is_found(run, folder, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(folder))

    assert "install Java" in findings(run("check", "--warehouse", "lake"))["Java"]


def test_executors_elsewhere_that_have_no_python_of_ours_are_doubtful(run, folder, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    far = ("check", "--warehouse", "lake", "--master", "spark://far:7077")

    assert "! workers: the executors of spark://far:7077 run the python3" in run(*far).out
    wrong = findings(run(*far, "--worker-environment", "missing.tar.gz"))
    assert "`sparkport pack" in wrong["workers"]


def test_grants_to_somebody_need_tokens(run, folder):
    (folder / "sparkport.toml").write_text(
        "demo = true\n[[grants]]\nto = 'ada'\non = 'demo'\nmay = 'read'"
    )

    assert "need tokens" in findings(run("check", "--config", "sparkport.toml"))["permissions"]
