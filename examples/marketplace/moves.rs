//! What a lister and a buyer do. Each is: read, decide, write. Nothing here knows how others are kept away meanwhile.

use redis::{Connection, Pipeline, RedisResult};

use crate::world::{World, maker};

/// One move of an item from one place to another.
pub trait Move {
    fn item(&self) -> &str;

    /// The keys that the decision rests on, for `WATCH`.
    fn rests_on(&self) -> Vec<String>;

    /// Reads and decides, in one round trip. `false`: there is nothing to move any more.
    fn is_possible(&self, redis: &mut Connection) -> RedisResult<bool>;

    /// The writes, as one `MULTI`/`EXEC` in one round trip. `WATCH` needs it; under a lock nobody else would interfere
    /// with a plain pipeline, but half a move would remain if it broke off in the middle, and those who only look
    /// take no lock and would see an item in two places or in none. It also keeps the comparison fair.
    fn writes(&self) -> Pipeline;
}

/// Puts an item of the lister's own inventory on the market.
pub struct Listing<'a> {
    pub world: &'a World,
    pub lister: &'a str,
    pub item: &'a str,
    pub price: i64,
}

/// Buys an item at the price seen. The money goes to the item's maker.
pub struct Purchase<'a> {
    pub world: &'a World,
    pub buyer: &'a str,
    pub item: &'a str,
    pub price: i64,
}

impl Move for Listing<'_> {
    fn item(&self) -> &str {
        self.item
    }

    /// Not the market: a listing fits beside any other, so a lister under `WATCH` never has to retry.
    fn rests_on(&self) -> Vec<String> {
        vec![self.world.inventory(self.lister)]
    }

    fn is_possible(&self, redis: &mut Connection) -> RedisResult<bool> {
        redis::cmd("SISMEMBER")
            .arg(self.world.inventory(self.lister))
            .arg(self.item)
            .query(redis)
    }

    fn writes(&self) -> Pipeline {
        let mut pipe = redis::pipe();
        pipe.atomic()
            .zadd(self.world.market(), self.item, self.price)
            .srem(self.world.inventory(self.lister), self.item);
        pipe
    }
}

impl Move for Purchase<'_> {
    fn item(&self) -> &str {
        self.item
    }

    fn rests_on(&self) -> Vec<String> {
        vec![self.world.market(), self.world.account(self.buyer)]
    }

    fn is_possible(&self, redis: &mut Connection) -> RedisResult<bool> {
        let (price, funds): (Option<i64>, i64) = redis::pipe()
            .zscore(self.world.market(), self.item)
            .hget(self.world.account(self.buyer), "funds")
            .query(redis)?;
        Ok(price == Some(self.price) && self.price <= funds)
    }

    fn writes(&self) -> Pipeline {
        let seller = self.world.account(maker(self.item));
        let mut pipe = redis::pipe();
        pipe.atomic()
            .hincr(seller, "funds", self.price)
            .hincr(self.world.account(self.buyer), "funds", -self.price)
            .sadd(self.world.inventory(self.buyer), self.item)
            .zrem(self.world.market(), self.item);
        pipe
    }
}
