// Package kernel attaches block devices to the Linux kernel's NBD client:
// /dev/nbdN, made by generic netlink. Another package answers the requests.
//
// A connection is a pair of unix sockets; the kernel has one end, the serve
// function of the caller gets the other. What the kernel makes of it, as seen
// on 6.1 and 6.12, decides the shape of this package:
//
//   - With one connection and TIMEOUT 0 a silent server is waited for; with
//     more, or a timeout, a request that is late ends a connection that lives.
//   - When the server goes away, requests already sent stay until their
//     deadline (queue/io_timeout) and are then sent again on the new
//     connection; new ones wait up to DEAD_CONN_TIMEOUT for it.
//   - RECONFIGURE answers "done" and drops the new socket when no connection
//     is dead. So a connection counts as given back only when the kernel holds
//     its end.
//   - STATUS, and the process id in sysfs, say nothing about whether somebody
//     serves a device.
//   - A netlink call runs inside the system call that sends it, may wait for a
//     server that does not read, and cannot be interrupted. So it has its own
//     goroutine, and callers leave it behind when their context ends.
package kernel
