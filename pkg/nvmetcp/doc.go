// Package nvmetcp is a user-space NVMe/TCP host (NVM Express TCP Transport 1.1):
// one controller of a subsystem, with its admin queue and I/O queues, each on a
// connection of its own.
//
// A queue is a wire.Flow with the codec of this package, and a wire.Link: what
// moves commands without locks is described there. In the order of a controller's
// life:
//
//  1. Dial (dial.go): connect (ICReq, ICResp), Fabrics Connect, DH-HMAC-CHAP if
//     asked for, enable, Identify, features, I/O queues (bring.go).
//  2. Namespace.Submit (namespace.go): the lane's queue, a tag, the inbox.
//  3. queue.Command (send.go): form.encode makes the entry (encode.go); the data
//     goes in the capsule if it fits, else the controller asks for it.
//  4. queue.Header (receive.go): data of reads lands in its buffer, R2Ts become
//     jobs of the sender, responses complete commands.
//  5. Beside it: the ticker with keep alive and timeouts (tick.go), admin commands
//     (exec.go), events (events.go), identification (identify.go).
//  6. The end (controller.go): all sockets are aborted, senders and readers have
//     left, and only then everything is handed to Sink.Lost.
package nvmetcp
