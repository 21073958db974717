//! Deserialisation of sections from tables only.
//!
//! Derived structs also read from a list, field by field: `limits = [5]` would silently set the first limit. These two
//! functions, named in `deserialize_with`, reject that.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Reads a `T` from a table.
pub(super) fn one<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    StrictTable::deserialize(from).map(|StrictTable(value)| value)
}

/// Reads a map whose values are tables.
pub(super) fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let tables = BTreeMap::<String, StrictTable<T>>::deserialize(from)?;
    Ok(tables.into_iter().map(|(name, StrictTable(value))| (name, value)).collect())
}

struct StrictTable<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictTable<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(TableVisitor(PhantomData)).map(StrictTable)
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
