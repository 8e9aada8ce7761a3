//! Rings in a simulated world, and the values that they begin with.

use super::{Driver, Ring};
use crate::common::Common;
use crate::fd::{Fd, Handle};
use crate::gate::Device;
use crate::sim::{Sim, World};
use crate::wall::Wall;

impl Ring {
    /// Make a ring in a simulated world. Several may share one; each sleeps alone, and lets the
    /// world go on for all.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buffers.
    #[must_use]
    pub fn simulated(world: &World) -> Self {
        let common = Common::new().expect("an eventfd that stays unused");
        let sim = Sim::new(world).expect("memory to receive into");
        let reason = format!("seed {}", world.seed());
        let driver = Driver::Sim(sim);
        Self {
            common,
            driver,
            reason,
            waker: None,
            answered: Vec::new(),
            woke_at: world.now(),
            wall: Wall::default(),
            drop_limit: None,
        }
    }

    /// A listening socket in the simulated world. If there are several, a new connection goes to
    /// any of them.
    #[must_use]
    pub fn sim_listener(&self, world: &World) -> Fd {
        self.common.fd(Handle::Sim(world.open_listener()))
    }

    /// The root directory of the simulated world, which is also the working directory.
    #[must_use]
    pub fn sim_root(&self, world: &World) -> Fd {
        let root = self.common.fd(Handle::Sim(world.open_root()));
        root.set_device(Device::of(world.root_device()));
        root
    }
}
