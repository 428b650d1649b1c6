//! Which node of a cluster has which slot.

use std::{fmt, iter};

use redis::{ConnectionAddr, Value};

use crate::keys::SLOTS;

/// What stands for the host of a node that should be known by its name, but was given none.
pub(super) const NAMELESS: &str = "?";

/// Where a node is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store::redis) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// The address in a URL; `None` for a socket.
    pub(super) fn of(address: &ConnectionAddr) -> Option<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) => Some(Self {
                host: host.clone(),
                port: *port,
            }),
            _ => None,
        }
    }

    pub(super) fn to_addr(&self) -> ConnectionAddr {
        ConnectionAddr::Tcp(self.host.clone(), self.port)
    }

    /// What a node says: `host:port`, without the host if that is the one of `asked`, which has said it.
    pub(super) fn parse(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(asked.beside(Some(host), port.parse().ok()?))
    }

    /// The address of a node as this one names it: one that it does not know a host of is where it is itself.
    fn beside(&self, host: Option<&str>, port: u16) -> Self {
        let host = host.filter(|host| !["", NAMELESS].contains(host)).unwrap_or(&self.host);
        let host = host.to_owned();
        Self { host, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The master of each slot, as far as they are known.
#[derive(Clone)]
pub(super) struct SlotMap {
    masters: Vec<Endpoint>,
    replicas: Vec<Endpoint>,
    /// For each slot where its master stands among them.
    owners: Box<[u16]>,
}

const NOBODY: u16 = u16::MAX;

impl Default for SlotMap {
    fn default() -> Self {
        Self {
            masters: Vec::new(),
            replicas: Vec::new(),
            owners: iter::repeat_n(NOBODY, SLOTS.into()).collect(),
        }
    }
}

impl SlotMap {
    /// The answer of `asked` to `CLUSTER SLOTS`; `None` if it is not one.
    pub(super) fn read(answer: &Value, asked: &Endpoint) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut map = Self::default();
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let [master, replicas @ ..] = nodes else {
                return None;
            };
            // There may be no way to the master; a replica does not do in its place.
            let owner = read_node(master, asked).map_or(NOBODY, |master| map.master(master));
            map.owners.get_mut(first..=last)?.fill(owner);
            for replica in replicas.iter().filter_map(|node| read_node(node, asked)) {
                if !map.replicas.contains(&replica) {
                    map.replicas.push(replica);
                }
            }
        }
        Some(map)
    }

    /// Takes in who has a slot.
    pub(super) fn give(&mut self, slot: u16, owner: Endpoint) {
        self.owners[usize::from(slot)] = self.master(owner);
    }

    fn master(&mut self, address: Endpoint) -> u16 {
        let known = self.masters.iter().position(|master| *master == address);
        let at = known.unwrap_or_else(|| {
            self.masters.push(address);
            self.masters.len() - 1
        });
        // There are no more masters than slots.
        at as u16
    }

    pub(super) fn is_empty(&self) -> bool {
        self.masters.is_empty()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Endpoint> {
        self.masters.get(usize::from(self.owners[usize::from(slot)]))
    }

    /// The slots that `owner` has.
    pub(super) fn slots_of(&self, owner: &Endpoint) -> Vec<u16> {
        (0..SLOTS).filter(|&slot| self.owner(slot) == Some(owner)).collect()
    }

    /// All nodes, masters first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Endpoint> {
        self.masters.iter().chain(&self.replicas)
    }
}

/// One node: host, port, identity, and more.
fn read_node(node: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = node else {
        return None;
    };
    let [host, Value::Int(port), more @ ..] = &parts[..] else {
        return None;
    };
    let host = match text(host) {
        Some(NAMELESS) => address_among(more).or(Some(NAMELESS)),
        host => host,
    };
    // A node that has no port for the likes of us has 0.
    let port = u16::try_from(*port).ok().filter(|&port| port != 0)?;
    Some(asked.beside(host, port))
}

/// The IP address among what else is told of a node.
fn address_among(more: &[Value]) -> Option<&str> {
    let Some(Value::Array(words)) = more.get(1) else {
        return None;
    };
    let mut pairs = words.chunks_exact(2);
    let address = pairs.find_map(|pair| (text(&pair[0]) == Some("ip")).then(|| text(&pair[1])))?;
    address.filter(|address| !address.is_empty())
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Endpoint {
        Endpoint::parse(
            text,
            &Endpoint {
                host: "asked".into(),
                port: 1,
            },
        )
        .unwrap()
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("an id"), Value::Array(vec![])])
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().into())
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    #[test]
    fn redirections_name_a_host_and_a_port_or_a_port_beside_the_one_that_was_asked() {
        assert_eq!(address("10.0.0.1:7000").to_string(), "10.0.0.1:7000");
        assert_eq!(address("fe80::1:7000").host, "fe80::1");
        assert_eq!(address(":7000").to_string(), "asked:7000");
        assert_eq!(address("?:7000").to_string(), "asked:7000");
        let asked = address("a:1");
        for nonsense in ["", "a", "a:", "a:65536", "a:b"] {
            assert_eq!(Endpoint::parse(nonsense, &asked), None, "{nonsense}");
        }
    }

    #[test]
    fn a_map_tells_the_master_of_each_slot() {
        let answer = Value::Array(vec![
            range(0, 100, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            range(101, 101, vec![node(bulk(""), 3)]),
            range(200, 16383, vec![node(Value::Nil, 4), node(bulk("?"), 5)]),
            range(150, 160, vec![node(bulk("a"), 1)]),
        ]);
        let map = SlotMap::read(&answer, &address("asked:1")).unwrap();
        let owner = |slot| map.owner(slot).map(Endpoint::to_string).unwrap_or_default();
        assert_eq!(
            [0, 100, 101, 102, 150, 200, 16383].map(owner),
            ["a:1", "a:1", "asked:3", "", "a:1", "asked:4", "asked:4"]
        );
        let nodes: Vec<String> = map.nodes().map(Endpoint::to_string).collect();
        assert_eq!(nodes, ["a:1", "asked:3", "asked:4", "b:2", "asked:5"]);
    }

    #[test]
    fn a_node_that_was_given_no_name_is_known_by_its_address() {
        let nameless = |details: Vec<Value>| {
            let node = Value::Array(vec![bulk("?"), Value::Int(7), bulk("an id"), Value::Array(details)]);
            let map = SlotMap::read(&Value::Array(vec![range(0, 5, vec![node])]), &address("asked:1"));
            map.unwrap().owner(0).unwrap().to_string()
        };
        assert_eq!(nameless(vec![bulk("ip"), bulk("10.0.0.5")]), "10.0.0.5:7");
        assert_eq!(
            nameless(vec![bulk("shard"), bulk("ip"), bulk("ip"), bulk("::1")]),
            "::1:7"
        );
        assert_eq!(nameless(vec![bulk("ip"), bulk("")]), "asked:7");
        assert_eq!(nameless(vec![]), "asked:7");
    }

    #[test]
    fn a_replica_is_not_taken_for_a_master_that_has_no_port_for_us() {
        let answer = Value::Array(vec![
            range(0, 5, vec![node(bulk("a"), 0), node(bulk("b"), 2)]),
            range(6, 9, vec![node(bulk("c"), 3)]),
        ]);
        let map = SlotMap::read(&answer, &address("asked:1")).unwrap();
        assert_eq!(map.owner(0), None);
        assert_eq!(map.owner(6), Some(&address("c:3")));
        assert!(map.nodes().any(|node| *node == address("b:2")));
    }

    #[test]
    fn what_is_no_map_is_not_taken_for_one() {
        let asked = address("a:1");
        for nonsense in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16384, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(-1, 5, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(0, 5, vec![])]),
        ] {
            assert!(SlotMap::read(&nonsense, &asked).is_none(), "{nonsense:?}");
        }
        assert!(SlotMap::read(&Value::Array(vec![]), &asked).unwrap().is_empty());
    }

    #[test]
    fn one_slot_may_change_hands() {
        let mut map = SlotMap::default();
        map.give(5, address("a:1"));
        map.give(6, address("b:1"));
        map.give(5, address("b:1"));
        assert_eq!(map.owner(5), Some(&address("b:1")));
        assert_eq!(map.owner(7), None);
    }
}
