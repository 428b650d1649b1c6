//! A process that is killed while it holds a lock: this program again, told by its environment what it is to be.

use std::{
    env,
    io::{self, BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use super::{Failure, World, no_timeout, two_commands};

/// Each names to a victim a thing that it needs to know. Not by arguments: everybody can see those, and a URL may hold
/// a password.
const ROLE: &str = "REDLATCH_STAGES_ROLE";
const URL: &str = "REDLATCH_STAGES_URL";
const PREFIX: &str = "REDLATCH_STAGES_PREFIX";

/// A process that has taken a lock. Killed on drop.
pub struct Victim {
    process: Child,
}

impl Victim {
    /// Starts this program as a victim in the role of that name; returns once it has done its part.
    pub fn start(world: &World, role: &str) -> Result<Self, Failure> {
        let process = Command::new(env::current_exe()?)
            .env(ROLE, role)
            .env(URL, world.url())
            .env(PREFIX, world.prefix())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut victim = Self { process };
        let answers = victim.process.stdout.take().expect("a piped stdout");
        if BufReader::new(answers).read_line(&mut String::new())? == 0 {
            return Err("the process that was to be killed ended by itself; its own message is above".into());
        }
        Ok(victim)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it (SIGKILL): nothing in it can clean up. Returns once it is gone.
    pub fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// To be called first of all in `main`. If this process is a victim it plays its part and waits to be killed: then
/// true.
pub fn end_as_victim() -> Result<bool, Failure> {
    let Ok(role) = env::var(ROLE) else {
        return Ok(false);
    };
    let world = World::with_prefix(&env::var(URL)?, &env::var(PREFIX)?, io::sink())?;
    match role.as_str() {
        no_timeout::BY_HAND => no_timeout::hold_by_hand(&world)?,
        two_commands::BY_HAND => two_commands::take_half_by_hand(&world)?,
        no_timeout::WITH_REDLATCH => no_timeout::hold_with_redlatch(&world)?,
        _ => return Err(format!("there is no role {role:?}").into()),
    }
    Ok(true)
}

/// Here a victim is killed. It goes on only if the process that started it is gone.
pub fn wait_to_be_killed() -> io::Result<()> {
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
