//! Sends back all received bytes: `echo_server INTERFACE ADDRESS:PORT`. If the address is the kernel's, the server
//! uses only the port.

use std::collections::HashMap;

use netstack::{Application, ConnectionId, Lost, Stack, Time, Transmit};
use outq::OutQ;
mod support;

#[derive(Default)]
struct Echo {
    queues: HashMap<ConnectionId, OutQ<Vec<u8>>>,
    ended: Vec<ConnectionId>,
    due: Vec<ConnectionId>,
}

impl Application for Echo {
    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.queues.entry(id).or_default().push(bytes.to_vec());
        self.due.push(id);
    }
    fn acknowledged(&mut self, id: ConnectionId) {
        self.due.push(id);
    }
    fn room(&mut self, id: ConnectionId) {
        self.due.push(id);
    }
    fn ended(&mut self, id: ConnectionId) {
        self.queues.entry(id).or_default();
        self.ended.push(id);
    }
    fn closed(&mut self, id: ConnectionId) {
        self.queues.remove(&id);
    }
    fn lost(&mut self, id: ConnectionId, _why: Lost) {
        self.queues.remove(&id);
    }
}

impl netdev::Program for Echo {
    fn act(&mut self, now: Time, stack: &mut Stack, out: &mut impl Transmit) {
        self.ended.iter().for_each(|id| stack.shutdown(*id));
        self.due.append(&mut self.ended);
        while let Some(id) = self.due.pop() {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            stack.drain(now, id, queue, &mut u64::MAX.clone(), out);
            // A peer that does not read its echo has to wait.
            let takes_more = queue.promised() - queue.released() < 1 << 20;
            stack.set_receiving(now, id, takes_more, self, out);
        }
    }
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let [_, interface, local] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("echo_server INTERFACE ADDRESS:PORT".into());
    };
    let (frames, protocols) = (support::frames_of(interface), [netdev::Protocol::Tcp]);
    Err(support::run(interface, frames, local.parse()?, &protocols, Echo::default).unwrap_err())
}
