//! The seams of the server, proved by small implementations: sessions, transports, networks and
//! handlers of the tests' own, in the simulated world.

mod attached;
mod below;
mod clients;
mod copies;
mod dribble;
mod echo;
mod faults;
mod handshakes;
mod hosts;
mod includes;
mod interface;
mod lossy;
mod mixed;
mod proxy;
mod record;
mod reloads;
mod secured;
mod seeing;
mod stage;
mod streams;
mod table;
mod tls;
mod turns;
mod upstreams;
mod users;
mod whoami;
mod world;
