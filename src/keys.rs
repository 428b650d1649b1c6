//! The names that stand on the server: `docs/protocol.md` describes them for other languages.

use crate::{
    Error,
    store::{Channel, Kind},
};

/// What stands before every name: `<prefix>lock:<name>` unless the builder says otherwise, `<prefix>semaphore:<name>`.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    pub(crate) prefix: Vec<u8>,
    pub(crate) lock_prefix: Vec<u8>,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            lock_prefix: b"lock:".to_vec(),
        }
    }
}

impl Keyspace {
    /// A channel for a client, unlike any other's.
    pub(crate) fn channel(&self) -> Channel {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Channel([&self.prefix[..], b"redlatch:", id.as_bytes()].concat().into())
    }

    /// The main key of `name`.
    pub(crate) fn main(&self, kind: Kind, name: &[u8]) -> Result<Vec<u8>, Error> {
        if name.is_empty() {
            return Err(Error::invalid("the name must not be empty"));
        }
        let kind_prefix = match kind {
            Kind::Lock => &self.lock_prefix[..],
            Kind::Semaphore { .. } => b"semaphore:",
        };
        let key = [&self.prefix[..], kind_prefix, name].concat();
        if looks_like_a_helper(&key) {
            return Err(Error::invalid(format!(
                "the key `{}` looks like one of redlatch's helper keys",
                key.escape_ascii()
            )));
        }
        Ok(key)
    }
}

const HELPER_MARK: &[u8] = b"}:redlatch:";

/// The key of a helper of `main` that lives in the same hash slot of a cluster:
/// `{<hash tag, or else the whole main key>}:redlatch:<kind>:<main key>`.
pub(crate) fn helper(kind: &str, main: &[u8]) -> Vec<u8> {
    [
        b"{",
        hash_tag(main).unwrap_or(main),
        HELPER_MARK,
        kind.as_bytes(),
        b":",
        main,
    ]
    .concat()
}

/// The kind of a helper that never stands anywhere. A cluster refuses a script that names a key which is missing while
/// their slot is being moved; so one that names this runs before such a move or after it, and never in the middle.
pub(crate) const BARRIER: &str = "barrier";

/// Main keys of this shape are refused, so that none can be taken for another key's helper and no two share one.
fn looks_like_a_helper(key: &[u8]) -> bool {
    key.windows(HELPER_MARK.len()).any(|part| part == HELPER_MARK)
}

/// The part of a key that alone decides its slot, by the rule of the Redis Cluster specification: what stands
/// between the first `{` and the first `}` after it, unless that is empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let start = key.iter().position(|&byte| byte == b'{')? + 1;
    let length = key[start..].iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &key[start..start + length])
}

/// How many slots the keys of a cluster are spread over.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key, by the rule of the Redis Cluster specification.
pub(crate) fn slot(key: &[u8]) -> u16 {
    const HASH: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    HASH.checksum(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Whether the helpers of `main` are in its slot. They are not if the whole key decides that, and ends early as a hash
/// tag: `a}b` and `a{}b`.
pub(crate) fn shares_its_slot(main: &[u8]) -> bool {
    hash_tag(main).is_some() || !main.contains(&b'}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(key: Vec<u8>) -> String {
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn a_lock_stands_where_redis_py_puts_it() {
        assert_eq!(
            text(Keyspace::default().main(Kind::Lock, b"item:42").unwrap()),
            "lock:item:42"
        );
    }

    #[test]
    fn the_prefix_comes_first_and_lock_can_be_replaced() {
        let keyspace = Keyspace {
            prefix: b"shop:".to_vec(),
            lock_prefix: b"".to_vec(),
        };
        assert_eq!(text(keyspace.main(Kind::Lock, b"x").unwrap()), "shop:x");
    }

    #[test]
    fn helpers_share_the_slot_of_their_main_key() {
        assert_eq!(text(helper("fencing", b"lock:x")), "{lock:x}:redlatch:fencing:lock:x");
        assert_eq!(
            text(helper("fencing", b"lock:{user:1}:x")),
            "{user:1}:redlatch:fencing:lock:{user:1}:x"
        );
        for main in [&b"lock:x"[..], b"lock:{a}b", b"lock:{a", b"lock:x{{a}}"] {
            let helper = helper("fencing", main);
            assert_eq!(hash_tag(&helper), Some(hash_tag(main).unwrap_or(main)));
        }
    }

    #[test]
    fn no_main_key_can_be_taken_for_a_helper() {
        let bare = Keyspace {
            prefix: Vec::new(),
            lock_prefix: Vec::new(),
        };
        let helper = helper("fencing", b"x");
        assert!(matches!(bare.main(Kind::Lock, &helper), Err(Error::InvalidArgument(_))));
        assert!(Keyspace::default().main(Kind::Lock, &helper).is_err());
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert!(matches!(
            Keyspace::default().main(Kind::Lock, b""),
            Err(Error::InvalidArgument(_))
        ));
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        // As `CLUSTER KEYSLOT` says.
        for (key, expected) in [
            ("123456789", 0x31c3),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("a{foo}{bar}", 12182),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        // A tag that is empty, or has no end, is none.
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(hash_tag(b"foo{bar"), None);
    }

    #[test]
    fn keys_that_end_their_helpers_hash_tag_early_cannot_share_a_slot() {
        for key in [&b"a}b"[..], b"a{}b", b"}", b"{}{a}", b"a}{b"] {
            assert!(!shares_its_slot(key), "{}", key.escape_ascii());
        }
        for key in [&b"a"[..], b"{a}b", b"a{b", b"}{a}", b"{{a}}", b"{a}{}"] {
            assert!(shares_its_slot(key), "{}", key.escape_ascii());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_key_and_its_helpers_share_a_slot_or_are_refused(
            main in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), any::<u8>()], 1..12),
        ) {
            if shares_its_slot(&main) {
                for kind in ["fencing", "queue", "waiters", "released", "limit", BARRIER] {
                    prop_assert_eq!(slot(&helper(kind, &main)), slot(&main));
                }
            }
        }
    }
}
