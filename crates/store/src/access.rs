//! Tokens and grants: credentials for the network, and rules from clearances that were allowed always.

use rusqlite::{Connection, Row, params};

use super::audit::append;
use super::read::{IdLookup, find, one_of, rows, text_id};
use super::{Store, StoreError};
use intercom_types::{Grant, GrantId, Json, NewAuditRow, Role, Time, Token, TokenId};

const TOKEN: &str =
    "t.id, t.name, t.role, t.created_by, t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
     t.last_used_from, t.hash, t.key FROM tokens t";
const GRANT: &str =
    "g.id, g.rule, g.clearance, g.created_by, g.created_at, g.expires_at, g.revoked_at, g.key FROM grants g";

/// A token and the hash of its secret.
#[derive(Debug, Clone)]
pub struct StoredToken {
    pub token: Token,
    pub hash: Vec<u8>,
}

impl Store {
    pub async fn add_token(&self, known: StoredToken, entry: NewAuditRow) -> Result<(), StoreError> {
        self.transact(move |connection| {
            let StoredToken { token: t, hash } = known;
            connection.execute(
                "INSERT INTO tokens (id, name, role, hash, created_by, created_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    t.id.to_string(),
                    t.name,
                    t.role.as_str(),
                    hash,
                    t.created_by,
                    t.created_at.millis(),
                    t.expires_at.map(Time::millis)
                ],
            )?;
            append(connection, &entry)
        })
        .await
    }

    /// Returns all tokens, newest first.
    pub async fn tokens(&self) -> Result<Vec<StoredToken>, StoreError> {
        self.read(|connection| list(connection, TOKEN, "t", token)).await
    }

    /// Finds a token by id, by the name of its owner, or by a unique prefix of an id. A name selects the owner's
    /// unrevoked tokens, if there are any.
    pub async fn token(&self, typed: String) -> Result<IdLookup<StoredToken>, StoreError> {
        self.read(move |connection| {
            let id = |known: &StoredToken| known.token.id.to_string();
            // A name that looks like an id must not shadow that id.
            let is_id = typed.parse::<TokenId>().is_ok();
            for scope in ["t.revoked_at IS NULL", "1"].into_iter().filter(|_| !is_id) {
                let sql = format!("SELECT {TOKEN} WHERE t.name = ?1 AND {scope} ORDER BY t.key DESC");
                let named = rows(connection, &sql, params![typed], token)?;
                if !named.is_empty() {
                    return Ok(one_of(named, id));
                }
            }
            find(connection, TOKEN, "t", TokenId::PREFIX, &typed, token, id)
        })
        .await
    }

    /// Revokes a token; returns whether it was valid until now.
    pub async fn revoke_token(&self, id: String, at: Time, entry: NewAuditRow) -> Result<bool, StoreError> {
        self.transact(move |connection| revoke(connection, "tokens", &id, at, &entry)).await
    }

    pub async fn record_token_use(
        &self,
        id: String,
        from: String,
        entry: NewAuditRow,
    ) -> Result<(), StoreError> {
        self.transact(move |connection| {
            connection.execute(
                "UPDATE tokens SET last_used_at = ?2, last_used_from = ?3 WHERE id = ?1",
                params![id, entry.at.millis(), from],
            )?;
            append(connection, &entry)
        })
        .await
    }

    pub async fn add_grant(&self, grant: Grant, entry: NewAuditRow) -> Result<(), StoreError> {
        self.transact(move |connection| {
            connection.execute(
                "INSERT INTO grants (id, rule, clearance, created_by, created_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    grant.id.to_string(),
                    grant.rule.as_str(),
                    grant.clearance.to_string(),
                    grant.created_by,
                    grant.created_at.millis(),
                    grant.expires_at.map(Time::millis)
                ],
            )?;
            append(connection, &entry)
        })
        .await
    }

    /// Returns all grants, newest first.
    pub async fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        self.read(|connection| list(connection, GRANT, "g", grant)).await
    }

    pub async fn grant(&self, typed: String) -> Result<IdLookup<Grant>, StoreError> {
        self.read(move |connection| {
            find(connection, GRANT, "g", GrantId::PREFIX, &typed, grant, |grant| grant.id.to_string())
        })
        .await
    }

    /// Revokes a grant; returns whether it was valid until now.
    pub async fn revoke_grant(&self, id: String, at: Time, entry: NewAuditRow) -> Result<bool, StoreError> {
        self.transact(move |connection| revoke(connection, "grants", &id, at, &entry)).await
    }
}

fn list<T>(
    connection: &Connection,
    select: &str,
    table: &str,
    make: fn(&Row<'_>) -> Result<(T, i64), StoreError>,
) -> Result<Vec<T>, StoreError> {
    let found = rows(connection, &format!("SELECT {select} ORDER BY {table}.key DESC"), params![], make)?;
    Ok(found.into_iter().map(|(item, _)| item).collect())
}

fn revoke(
    connection: &Connection,
    table: &str,
    id: &str,
    at: Time,
    entry: &NewAuditRow,
) -> Result<bool, StoreError> {
    let sql = format!("UPDATE {table} SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL");
    let changed = connection.execute(&sql, params![id, at.millis()])?;
    if changed > 0 {
        append(connection, entry)?;
    }
    Ok(changed > 0)
}

fn token(row: &Row<'_>) -> Result<(StoredToken, i64), StoreError> {
    let corrupt = StoreError::Corrupt { what: "a token" };
    let token = Token {
        id: text_id(row, 0)?,
        name: row.get(1)?,
        role: Role::parse(&row.get::<_, String>(2)?).ok_or(corrupt)?,
        created_by: row.get(3)?,
        created_at: Time::from_millis(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Time::from_millis),
        revoked_at: row.get::<_, Option<i64>>(6)?.map(Time::from_millis),
        last_used_at: row.get::<_, Option<i64>>(7)?.map(Time::from_millis),
        last_used_from: row.get(8)?,
    };
    Ok((StoredToken { token, hash: row.get(9)? }, row.get(10)?))
}

fn grant(row: &Row<'_>) -> Result<(Grant, i64), StoreError> {
    let grant = Grant {
        id: text_id(row, 0)?,
        rule: Json::trusted(row.get::<_, String>(1)?),
        clearance: text_id(row, 2)?,
        created_by: row.get(3)?,
        created_at: Time::from_millis(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Time::from_millis),
        revoked_at: row.get::<_, Option<i64>>(6)?.map(Time::from_millis),
    };
    Ok((grant, row.get(7)?))
}
