//! Frames from and to a network interface: AF_XDP, packet sockets with large segments, TAP.
