use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Connection, RedisResult, cmd};

use super::port::ReservedPort;
use super::server::Server;
use super::time::{SECOND, wait_patiently_until};

/// How long a cluster may take to come up, to fail over or to agree, on a busy machine.
const PATIENCE: Duration = SECOND.saturating_mul(60);

/// How many masters there are, each with one replica.
const MASTERS: usize = 3;

const SLOTS: u16 = 16384;

/// A cluster of three masters, each with a replica.
pub struct Cluster {
    nodes: Vec<Node>,
    /// Held while keys are moved, or a slot gets its new master. Two masters that move keys to each other at once wait
    /// for each other in vain. Two slots that get their masters at once may do so by the same epoch, or by one that the
    /// former master has outdone meanwhile: then the slot goes back, and what is in it is thrown away.
    moving: Mutex<()>,
}

struct Node {
    server: Server,
    /// Where the nodes speak among themselves.
    bus: ReservedPort,
}

impl Cluster {
    /// The cluster that the tests of this binary share: for tests that need nothing but names of their own. It never
    /// fails over: a node that a busy machine does not run for seconds is waited for.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Cluster> = LazyLock::new(|| {
            let cluster = Cluster::start();
            for node in cluster.servers() {
                node.run("CONFIG SET cluster-node-timeout 600000");
            }
            cluster
        });
        &SHARED
    }

    /// Starts six empty nodes, and returns when they are a cluster, whose first three nodes are the masters. A node is
    /// taken to be down after 3 s of silence.
    pub fn start() -> Self {
        let nodes = thread::scope(|scope| {
            let nodes = [(); MASTERS * 2].map(|()| scope.spawn(Node::start));
            nodes.map(|node| node.join().expect("a node")).into()
        });
        let moving = Mutex::new(());
        let cluster = Self { nodes, moving };
        cluster.introduce();
        cluster.assign_replicas();
        wait_patiently_until("the cluster to be complete", PATIENCE, || cluster.is_complete());
        cluster
    }

    /// Shares the slots out among the masters and has every node meet every other, which they would do by themselves
    /// once each knows of one; but it would take longer.
    fn introduce(&self) {
        for (nth, node) in self.nodes.iter().enumerate() {
            // Or they would have to settle who is the first among those of the same epoch.
            node.server.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1));
        }
        let share = SLOTS.div_ceil(MASTERS as u16);
        for (master, first) in self.nodes.iter().zip((0..SLOTS).step_by(share.into())) {
            let last = (first + share).min(SLOTS) - 1;
            master.server.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        for (nth, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[nth + 1..] {
                let (port, bus) = (other.server.port(), other.bus.number());
                node.server.run(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            }
        }
        wait_patiently_until("the nodes to have met", PATIENCE, || {
            self.servers().all(|server| {
                let members = members_by(server).unwrap_or_default();
                members.len() == self.nodes.len() && members.iter().all(Member::is_well)
            })
        });
    }

    fn assign_replicas(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (master, replica) in masters.iter().zip(replicas) {
            let id = id_of(&master.server);
            replica.server.run(&format!("CLUSTER REPLICATE {id}"));
        }
    }

    /// Whether every node is well in the eyes of every other, and every replica has what its master has.
    fn is_complete(&self) -> bool {
        let knows_all = |server: &Server| {
            let members = members_by(server).unwrap_or_default();
            let replicas = members.iter().filter(|member| member.master.is_some()).count();
            replicas == MASTERS && members.iter().all(Member::is_well)
        };
        self.agreed_owners().is_some()
            && self.servers().all(knows_all)
            && self.masters().iter().all(|master| master.replicas_in_sync() == 1)
            && self.servers().filter(|server| server.is_in_sync()).count() == MASTERS
    }

    /// `redis-cluster://` with the first three nodes, which were the masters when it was started.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes[..MASTERS]
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.server.port()))
            .collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// The nodes 0 to 2 were the masters when it was started, and 3 to 5 their replicas in the same order.
    pub fn node(&self, nth: usize) -> &Server {
        &self.nodes[nth].server
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let mut connection = self.running().next().expect("a running node").connection();
        let slot = cmd("CLUSTER").arg("KEYSLOT").arg(key.as_ref()).query(&mut connection);
        slot.expect("CLUSTER KEYSLOT")
    }

    /// The master of a key's slot, by the nodes that know the latest.
    #[track_caller]
    pub fn master_of(&self, key: impl AsRef<[u8]>) -> &Server {
        let slot = self.slot_of(key);
        self.owner_of(slot).expect("a master that has the slot")
    }

    /// The masters that have slots, by the nodes that know the latest.
    #[track_caller]
    pub fn masters(&self) -> Vec<&Server> {
        let masters = self.members().into_iter().filter(|member| !member.slots.is_empty());
        masters.map(|master| self.server_at(master.port)).collect()
    }

    /// A master that does not have the slot of `key`: somewhere to move it to.
    #[track_caller]
    pub fn another_master_than_of(&self, key: impl AsRef<[u8]>) -> &Server {
        let own = self.master_of(key).port();
        let mut masters = self.masters().into_iter();
        masters.find(|master| master.port() != own).expect("another master")
    }

    /// The replica of a master.
    #[track_caller]
    pub fn replica_of(&self, master: &Server) -> &Server {
        let id = id_of(master);
        let mut members = self.members().into_iter();
        let replica = members.find(|member| member.master.as_ref() == Some(&id));
        self.server_at(replica.expect("a replica").port)
    }

    /// A connection to the master of a key's slot.
    #[track_caller]
    pub fn connection_for(&self, key: impl AsRef<[u8]>) -> Connection {
        self.master_of(key).connection()
    }

    /// The keys that match a pattern, over all masters.
    #[track_caller]
    pub fn keys(&self, pattern: &str) -> Vec<Vec<u8>> {
        self.masters().iter().flat_map(|master| master.keys(pattern)).collect()
    }

    /// Deletes the keys that match a pattern, all of a slot at once, and returns how many there were.
    #[track_caller]
    pub fn delete(&self, pattern: &str) -> usize {
        let mut by_slot = BTreeMap::<u16, Vec<_>>::new();
        for key in self.keys(pattern) {
            by_slot.entry(self.slot_of(&key)).or_default().push(key);
        }
        let deleted = by_slot.into_values().map(|keys| -> usize {
            let mut connection = self.connection_for(&keys[0]);
            cmd("DEL").arg(keys).query(&mut connection).expect("DEL")
        });
        deleted.sum()
    }

    /// Begins to move the slot of `key` to another master: from now on the old one sends those who ask for what it does
    /// not have to the new one (ASK).
    #[track_caller]
    pub fn begin_migration<'a>(&'a self, key: impl AsRef<[u8]>, to: &'a Server) -> Migration<'a> {
        let slot = self.slot_of(&key);
        let from = self.owner_of(slot).expect("a master that has the slot");
        to.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id_of(from)));
        from.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id_of(to)));
        Migration {
            cluster: self,
            slot,
            from,
            to,
        }
    }

    /// Moves the slot of `key`, and all that stands there, to another master.
    #[track_caller]
    pub fn migrate(&self, key: impl AsRef<[u8]>, to: &Server) {
        let migration = self.begin_migration(key, to);
        migration.move_keys();
        migration.finish();
    }

    /// Has a node without slots leave the cluster. It runs on, alone.
    #[track_caller]
    pub fn remove(&self, node: &Server) {
        let id = id_of(node);
        // The others would be introduced to it anew by one that has not forgotten it yet.
        for other in self.running().filter(|other| other.port() != node.port()) {
            other.run(&format!("CLUSTER FORGET {id}"));
        }
        node.run("CLUSTER RESET HARD");
    }

    /// Kills the master of a key's slot, and returns what has taken over once all nodes that are left agree on that.
    #[track_caller]
    pub fn failover(&self, key: impl AsRef<[u8]>) -> &Server {
        let former = self.master_of(&key);
        former.kill();
        self.wait_for_new_master(key, former)
    }

    /// Waits until all running nodes agree that the slot of `key` has another master than `former`.
    #[track_caller]
    pub fn wait_for_new_master(&self, key: impl AsRef<[u8]>, former: &Server) -> &Server {
        let (slot, mut new) = (self.slot_of(key), None);
        wait_patiently_until("a replica to take over", PATIENCE, || {
            new = self.agreed_owners().and_then(|owners| {
                let owner = owners.into_iter().find(|(_, (_, slots))| covers(slots, slot));
                let new = self.server_at(owner?.0);
                (new.port() != former.port()).then_some(new)
            });
            new.is_some()
        });
        new.expect("a new master")
    }

    /// Waits until all nodes run, every master has its replica, and all agree: what it was like before a failover.
    #[track_caller]
    pub fn wait_until_settled(&self) {
        wait_patiently_until("the cluster to be complete again", PATIENCE, || {
            self.servers().all(Server::runs) && self.is_complete()
        });
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.servers().filter(|server| server.runs())
    }

    /// The members in the eyes of those nodes that know of the latest change of a master.
    #[track_caller]
    fn members(&self) -> Vec<Member> {
        let views = self.running().filter_map(|server| members_by(server).ok());
        let latest = views.max_by_key(|members| members.iter().map(|member| member.epoch).max());
        latest.expect("a node that answers")
    }

    fn owner_of(&self, slot: u16) -> Option<&Server> {
        let owner = self.members().into_iter().find(|member| covers(&member.slots, slot))?;
        Some(self.server_at(owner.port))
    }

    /// Who has which slots, if all running nodes serve requests and name the same.
    fn agreed_owners(&self) -> Option<Owners> {
        let mut views = self.running().map(|server| owners_by(server).ok().flatten());
        let first = views.next()??;
        views.all(|view| view.as_ref() == Some(&first)).then_some(first)
    }

    #[track_caller]
    fn server_at(&self, port: u16) -> &Server {
        let mut servers = self.servers();
        servers.find(|server| server.port() == port).expect("a node of ours")
    }
}

/// A slot that is on its way from one master to another. It stays in between until it is finished.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Server,
    to: &'a Server,
}

impl Migration<'_> {
    /// Moves one key, which may be gone by now. Until the others have followed, what asks for several is told to try
    /// again (TRYAGAIN).
    #[track_caller]
    pub fn move_key(&self, key: impl AsRef<[u8]>) {
        self.move_all(&[key.as_ref().to_vec()]);
    }

    /// Moves all keys of the slot that are left. From then on the old master sends everybody to the new one (ASK).
    #[track_caller]
    pub fn move_keys(&self) {
        loop {
            let mut left = cmd("CLUSTER");
            left.arg("GETKEYSINSLOT").arg(self.slot).arg(100);
            let left: Vec<Vec<u8>> = left.query(&mut self.from.connection()).expect("CLUSTER GETKEYSINSLOT");
            if left.is_empty() {
                return;
            }
            self.move_all(&left);
        }
    }

    #[track_caller]
    fn move_all(&self, keys: &[Vec<u8>]) {
        let _moving = self.cluster.moving.lock();
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.to.port()).arg("").arg(0).arg(5_000);
        // It answers NOKEY if all have expired meanwhile.
        migrate
            .arg("KEYS")
            .arg(keys)
            .exec(&mut self.from.connection())
            .expect("MIGRATE");
    }

    /// Makes the new master the slot's only one, and returns once all nodes know. From then on the old one sends
    /// everybody to it for good (MOVED). All keys must have been moved.
    #[track_caller]
    pub fn finish(self) {
        let _moving = self.cluster.moving.lock();
        let id = id_of(self.to);
        let order = format!("CLUSTER SETSLOT {} NODE {id}", self.slot);
        // The new one first: the slot is never without a master that way.
        self.to.run(&order);
        self.from.run(&order);
        wait_patiently_until("all nodes to know who has the slot", PATIENCE, || {
            let owners = self.cluster.agreed_owners().unwrap_or_default();
            let owner = owners.iter().find(|(_, (_, slots))| covers(slots, self.slot));
            owner.is_some_and(|(port, _)| *port == self.to.port())
        });
    }
}

impl Node {
    fn start() -> Self {
        let bus = ReservedPort::reserve().expect("a free TCP port");
        #[rustfmt::skip]
        let server = Server::start_with(&[
            "--cluster-enabled", "yes", "--cluster-port", &bus.number().to_string(), "--cluster-node-timeout", "3000",
            // A replica takes over however long it has not heard of its master, and stays with it otherwise.
            "--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
            "--repl-diskless-sync-delay", "0",
        ]);
        Self { server, bus }
    }
}

/// Who has which slots, by the ports of the masters; and by which right, since a slot is the one's that has it by the
/// larger epoch: a node that does not know yet by which one another has it cannot be given it for good.
type Owners = BTreeMap<u16, (u64, Vec<RangeInclusive<u16>>)>;

fn covers(slots: &[RangeInclusive<u16>], slot: u16) -> bool {
    slots.iter().any(|range| range.contains(&slot))
}

/// A node in the eyes of another: a line of `CLUSTER NODES`.
struct Member {
    id: String,
    port: u16,
    flags: Vec<String>,
    master: Option<String>,
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl Member {
    /// Reads `<id> <ip:port@bus> <flags> <master> <ping> <pong> <epoch> <link> <slots>...`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [id, address, flags, master, _, _, epoch, _, slots @ ..] = &words[..] else {
            return None;
        };
        let port = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        Some(Self {
            id: (*id).to_owned(),
            port,
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().ok()?,
            // What is on its way stands in brackets, besides the slots.
            slots: slots
                .iter()
                .filter(|word| !word.starts_with('['))
                .filter_map(range)
                .collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Whether it is met, and not suspected to be down.
    fn is_well(&self) -> bool {
        !["handshake", "noaddr", "fail", "fail?"]
            .iter()
            .any(|flag| self.is(flag))
    }
}

fn members_by(server: &Server) -> RedisResult<Vec<Member>> {
    let nodes: String = cmd("CLUSTER").arg("NODES").query(&mut server.try_connection()?)?;
    Ok(nodes.lines().filter_map(Member::parse).collect())
}

/// Who has which slots in the eyes of this node, if it serves requests.
fn owners_by(server: &Server) -> RedisResult<Option<Owners>> {
    let info: String = cmd("CLUSTER").arg("INFO").query(&mut server.try_connection()?)?;
    if !info.contains("cluster_state:ok") {
        return Ok(None);
    }
    let owners = members_by(server)?
        .into_iter()
        .filter(|member| !member.slots.is_empty());
    Ok(Some(
        owners
            .map(|member| (member.port, (member.epoch, member.slots)))
            .collect(),
    ))
}

#[track_caller]
fn id_of(server: &Server) -> String {
    let id = cmd("CLUSTER").arg("MYID").query(&mut server.connection());
    id.expect("CLUSTER MYID")
}
