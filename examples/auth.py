"""Serve only clients that have a token, and let tables and functions see who asks.

Run `python examples/auth.py`. You can also run `sparkport serve examples/auth.py:catalog`, but that
serves everybody, unless its flag `--authenticator` names `tokens` of this file. Then, in DuckDB:

    INSTALL airport FROM community; LOAD airport;
    CREATE SECRET ada (TYPE airport, auth_token 'ada-token', SCOPE 'grpc://127.0.0.1:50051');
    ATTACH 'office' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT office.desk.who();                                -- ada
    SELECT * FROM office.desk.letters;                       -- ('ada', 'Dear Ada')
    SELECT * FROM office.desk.salaries();                    -- ('ada', 100), ('grace', 120)

    DETACH office;
    CREATE OR REPLACE SECRET ada
        (TYPE airport, auth_token 'grace-token', SCOPE 'grpc://127.0.0.1:50051');
    ATTACH 'office' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');
    SELECT * FROM office.desk.letters;                       -- ('grace', 'Dear Grace')
    SELECT * FROM office.desk.salaries();
        -- Permission Error: grace may not see salaries

Tokens are sent as plain text: use `grpc+tls://` outside your own machine. For permissions, row
filters and masks that need no code, see docs/how-to/security.md.
"""

import pyarrow as pa

import sparkport as sp

catalog = sp.CatalogBuilder("office")
desk = catalog.schema("desk")
LETTERS = pa.table({"recipient": ["ada", "grace"], "text": ["Dear Ada", "Dear Grace"]})
SALARIES = pa.table({"name": ["ada", "grace"], "salary": [100, 120]})


@desk.scalar_function
def who(ctx: sp.Context) -> pa.string():
    return pa.scalar(ctx.principal, pa.string())


# Each sees their own rows.
def letters(ctx: sp.Context, options: sp.ScanOptions) -> list[pa.RecordBatch]:
    mine = [recipient == ctx.principal for recipient in LETTERS.column("recipient").to_pylist()]
    return LETTERS.filter(pa.array(mine)).to_batches()


desk.table("letters", letters, arrow_schema=LETTERS.schema)


# Or say no.
@desk.table_function(returns=SALARIES.schema)
def salaries(ctx: sp.Context) -> pa.Table:
    if ctx.principal != "ada":
        raise sp.PermissionDenied(f"{ctx.principal} may not see salaries")
    return SALARIES


# Real tokens are long and random (`secrets.token_urlsafe()`) and do not stand in the source.
# Instead of this fixed set, any function from a token to a name, or None, will do.
tokens = sp.TokenAuthenticator({"ada-token": "ada", "grace-token": "grace"})
settings = sp.ServerSettings(authenticate=tokens)

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051", settings)
