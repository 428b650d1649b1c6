//! What lies in Redis, and what must be true of it when everybody has gone home.
//!
//! | Key | Type | Content |
//! |---|---|---|
//! | `<prefix>market` | sorted set | items for sale, score = price |
//! | `<prefix>inventory:<user>` | set | items the user has |
//! | `<prefix>users:<user>` | hash | `funds`: the user's money |
//! | `<prefix>lock:…` | | what redlatch keeps for its locks, and some more keys with this name inside |
//!
//! An item is called `<lister>.<number>`, so its name tells whom to pay.

use std::collections::HashMap;

use redis::{Commands, Connection, RedisResult};

/// So much that no buyer can spend it in a run: whoever cannot pay would make the ways incomparable.
const FUNDS: i64 = 1_000_000_000;
pub const HIGHEST_PRICE: i64 = 100;

/// What a killed run leaves behind is gone after this long.
const LEFTOVERS_EXPIRE_SECONDS: u32 = 600;

/// The keys and the users of one run. Dropping it removes the keys.
pub struct World {
    url: String,
    prefix: String,
    redis: redis::Client,
    pub listers: Vec<String>,
    pub buyers: Vec<String>,
}

/// What traders say has happened, to be held against what Redis says.
#[derive(Default)]
pub struct Books {
    /// Every item ever made, whether listed or not.
    pub made: Vec<String>,
    pub listed: usize,
    pub sales: Vec<Sale>,
}

/// A purchase as its buyer wrote it down.
pub struct Sale {
    pub buyer: String,
    pub item: String,
    pub price: i64,
}

impl World {
    /// Connects, and gives every user some money.
    pub fn new(url: &str, listers: usize, buyers: usize) -> RedisResult<Self> {
        let redis = redis::Client::open(url)?;
        let mut connection = redis.get_connection()?;
        let world = World {
            url: url.to_owned(),
            prefix: format!("redlatch-marketplace:{:016x}:", fastrand::u64(..)),
            redis,
            listers: (1..=listers).map(|n| format!("lister{n}")).collect(),
            buyers: (1..=buyers).map(|n| format!("buyer{n}")).collect(),
        };
        for user in world.users() {
            connection.hset::<_, _, _, ()>(world.account(user), "funds", FUNDS)?;
        }
        Ok(world)
    }

    fn users(&self) -> impl Iterator<Item = &String> {
        self.listers.iter().chain(&self.buyers)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn connect(&self) -> RedisResult<Connection> {
        self.redis.get_connection()
    }

    pub fn market(&self) -> String {
        format!("{}market", self.prefix)
    }

    pub fn inventory(&self, user: &str) -> String {
        format!("{}inventory:{user}", self.prefix)
    }

    pub fn account(&self, user: &str) -> String {
        format!("{}users:{user}", self.prefix)
    }

    /// Gives every key that has none a TTL, in case nobody gets to remove them. `NX` matters: a bare `EXPIRE` counts
    /// as a change and would break a `WATCH` that had every right to succeed. It needs Redis 7; with older servers
    /// a killed run leaves its keys behind.
    pub fn expire_leftovers(&self, redis: &mut Connection) {
        let mut pipe = redis::pipe();
        let keys = (self.users())
            .flat_map(|user| [self.inventory(user), self.account(user)])
            .chain([self.market()]);
        for key in keys {
            pipe.cmd("EXPIRE").arg(key).arg(LEFTOVERS_EXPIRE_SECONDS).arg("NX");
        }
        let _ = pipe.exec(redis);
    }

    /// Compares Redis with the books; returns what is wrong.
    pub fn audit(&self, books: &Books) -> RedisResult<Vec<String>> {
        let mut redis = self.connect()?;
        let mut wrong = self.audit_items(books, &mut redis)?;
        wrong.extend(self.audit_funds(books, &mut redis)?);
        Ok(wrong)
    }

    fn audit_items(&self, books: &Books, redis: &mut Connection) -> RedisResult<Vec<String>> {
        let mut wrong = Vec::new();

        let mut times_sold: HashMap<&str, usize> = HashMap::new();
        for sale in &books.sales {
            *times_sold.entry(&sale.item).or_default() += 1;
        }
        times_sold.retain(|_, times| *times > 1);
        wrong.extend(complaint("sold more than once", &times_sold));

        let for_sale: Vec<String> = redis.zrange(self.market(), 0, -1)?;
        let mut unlisted: Vec<String> = Vec::new();
        for lister in &self.listers {
            unlisted.extend(redis.smembers::<_, Vec<String>>(self.inventory(lister))?);
        }
        let mut sold: Vec<String> = Vec::new();
        for buyer in &self.buyers {
            sold.extend(redis.smembers::<_, Vec<String>>(self.inventory(buyer))?);
        }
        let mut places: HashMap<&str, usize> = books.made.iter().map(|item| (item.as_str(), 0)).collect();
        for item in for_sale.iter().chain(&unlisted).chain(&sold) {
            *places.entry(item).or_default() += 1;
        }
        places.retain(|_, count| *count != 1);
        wrong.extend(complaint("not in exactly one place", &places));

        let (recorded, sold) = (books.sales.len(), sold.len());
        if recorded != sold {
            wrong.push(format!(
                "{recorded} purchases on record, but {sold} items changed hands"
            ));
        }
        let (listed, left) = (books.listed, for_sale.len());
        if listed != left + sold {
            wrong.push(format!(
                "{listed} items were listed, but {left} are for sale and {sold} sold"
            ));
        }
        Ok(wrong)
    }

    fn audit_funds(&self, books: &Books, redis: &mut Connection) -> RedisResult<Vec<String>> {
        let mut wrong = Vec::new();

        let mut expected: HashMap<&str, i64> = self.users().map(|user| (user.as_str(), FUNDS)).collect();
        let total_expected: i64 = expected.values().sum();
        for sale in &books.sales {
            *expected.entry(&sale.buyer).or_default() -= sale.price;
            *expected.entry(maker(&sale.item)).or_default() += sale.price;
        }
        let mut total = 0;
        for (user, expected) in expected {
            let funds: i64 = redis.hget(self.account(user), "funds")?;
            total += funds;
            if funds != expected {
                wrong.push(format!("{user} has {funds} coins instead of {expected}"));
            }
            // Funds of a buyer only fall: if they suffice for anything now, no purchase failed for want of money.
            if funds < HIGHEST_PRICE {
                wrong.push(format!("{user} ran out of money: {funds} coins left"));
            }
        }
        if total != total_expected {
            wrong.push(format!("there are {total} coins instead of {total_expected}"));
        }
        Ok(wrong)
    }

    /// Hence the leading `*`: the keys that redlatch keeps beside its locks start with a hash tag, `{<prefix>lock:…}`.
    /// They would expire by themselves, but not soon: a fencing counter outlives its lock by days.
    fn remove_all(&self) -> RedisResult<()> {
        let mut redis = self.connect()?;
        let mut cursor: u64 = 0;
        loop {
            let keys: Vec<Vec<u8>>;
            (cursor, keys) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("*{}*", self.prefix))
                .arg("COUNT")
                .arg(1000)
                .query(&mut redis)?;
            if !keys.is_empty() {
                redis.unlink::<_, ()>(keys)?;
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.remove_all() {
            eprintln!("could not remove the keys under {}: {error}", self.prefix);
        }
    }
}

/// The lister who made an item, and who gets the money.
pub fn maker(item: &str) -> &str {
    item.split_once('.').map_or(item, |(lister, _)| lister)
}

fn complaint(what: &str, items: &HashMap<&str, usize>) -> Option<String> {
    let example = items.keys().next()?;
    Some(format!("{} items {what}, such as {example}", items.len()))
}
