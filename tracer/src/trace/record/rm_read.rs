//! Reading [`Rm`] in one pass.
//!
//! `#[serde(flatten)]` stands for the same form, but to read it serde first gathers the fields in a tree, since it cannot
//! know which are the operation's. Requests are most of a server's trace, and that took most of the time of reading one.
//! Here a field that is none of the request's own is the operation, and read as such at once.

use std::fmt;

use serde::de::value::EnumAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, IntoDeserializer as _, MapAccess,
    VariantAccess, Visitor,
};

use super::{Op, Rm};

/// Fields of a request, then the names of operations.
const FIELDS: [&str; 20] = [
    "t",
    "start",
    "unfinished",
    "pid",
    "tid",
    "status",
    "calls",
    "outer",
    "stack",
    "alloc",
    "free",
    "dup",
    "export",
    "import",
    "register_vaspace",
    "gpu_id",
    "map",
    "unmap",
    "close",
    "unknown",
];

/// A field's name: one of [`FIELDS`]; empty for any other.
struct Name(&'static str);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;
        impl Visitor<'_> for Known {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(FIELDS.into_iter().find(|known| *known == name).unwrap_or_default()))
            }
        }
        deserializer.deserialize_identifier(Known)
    }
}

impl<'de> Deserialize<'de> for Rm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Rm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a driver request")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rm, A::Error> {
                let (mut rm, mut op) = (Rm::default(), None);
                while let Some(Name(name)) = map.next_key()? {
                    match name {
                        "t" => rm.t = map.next_value()?,
                        "start" => rm.start = map.next_value()?,
                        "unfinished" => rm.unfinished = map.next_value()?,
                        "pid" => rm.pid = map.next_value()?,
                        "tid" => rm.tid = map.next_value()?,
                        "status" => rm.status = map.next_value()?,
                        "calls" => rm.calls = map.next_value()?,
                        "outer" => rm.outer = map.next_value()?,
                        "stack" => rm.stack = map.next_value()?,
                        // A later version's field.
                        "" => _ = map.next_value::<IgnoredAny>()?,
                        name => {
                            let tagged = Tagged { name, map: &mut map };
                            op = Some(Op::deserialize(EnumAccessDeserializer::new(tagged))?);
                        }
                    }
                }
                rm.op = op.ok_or_else(|| A::Error::custom("no operation that is known"))?;
                Ok(rm)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// An operation: its name was read, its value comes next.
struct Tagged<'a, A> {
    name: &'static str,
    map: &'a mut A,
}

impl<'de, A: MapAccess<'de>> EnumAccess<'de> for Tagged<'_, A> {
    type Error = A::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), A::Error> {
        Ok((seed.deserialize(self.name.into_deserializer())?, self))
    }
}

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Tagged<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.map.next_value()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.map.next_value_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(By(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(By(visitor))
    }
}

/// What a visitor makes of a value.
struct By<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for By<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_any(self.0)
    }
}
