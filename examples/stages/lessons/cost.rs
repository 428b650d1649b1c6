//! What it costs to ask a server.

use std::{fmt, mem};

use redis::{Cmd, Connection, ConnectionLike, RedisResult, Value};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub round_trips: usize,
    pub commands: usize,
}

impl Cost {
    /// Of commands that are each sent when the one before has been answered.
    pub fn of_single_commands(commands: usize) -> Self {
        Self {
            round_trips: commands,
            commands,
        }
    }

    fn add(&mut self, commands: usize) {
        self.round_trips += 1;
        self.commands += commands;
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { round_trips, commands } = *self;
        write!(
            f,
            "{round_trips} round trip{} with {commands} command{}",
            plural(round_trips),
            plural(commands)
        )
    }
}

/// A connection that counts what is asked on it.
pub struct Counted<'a> {
    connection: &'a mut Connection,
    cost: Cost,
}

impl<'a> Counted<'a> {
    pub fn new(connection: &'a mut Connection) -> Self {
        Self {
            connection,
            cost: Cost::default(),
        }
    }

    /// What was asked since the last time.
    pub fn take_cost(&mut self) -> Cost {
        mem::take(&mut self.cost)
    }
}

impl ConnectionLike for Counted<'_> {
    fn req_command(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.cost.add(1);
        self.connection.req_command(command)
    }

    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.cost.add(1);
        self.connection.req_packed_command(command)
    }

    /// The first answers, `offset` in number, are of no interest; those to MULTI and what it queues.
    fn req_packed_commands(&mut self, commands: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.cost.add(offset + count);
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.connection.check_connection()
    }

    fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}
