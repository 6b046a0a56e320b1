// Package iscsi is a user-space iSCSI initiator (RFC 7143): one session, one
// connection, ErrorRecoveryLevel 0.
//
// The protocol is pure: login (login.go) and machine (machine.go) take bytes
// and the time, and return bytes and completions. Session is the shell with
// the socket and three goroutines: reader, writer, ticker.
//
// The life of an I/O, in the order the code is best read:
//
//  1. LUN.Submit (lun.go): a share of the unit's window, a tag (task.go), one
//     push into the transmitter's inbox. Lock-free, allocates nothing.
//  2. LUN.Kick (session.go): whoever finds the sender flag free becomes the
//     sender; everybody else leaves the work to it.
//  3. gather (send.go): controls, data asked for, commands, in one batch of
//     iovecs. CmdSN is given here, within the window; encode.go makes the CDB.
//     Small payload is copied behind its header, large goes by reference and is
//     counted in Command.Tx. The task is published to the reader.
//  4. Socket.Send, once per batch. A full socket passes the flag to the writer.
//  5. Session.read: space says where bytes go, fed parses them (receive.go).
//     The payload of Data-In lands in the command's buffer.
//  6. handle (handle.go): an R2T becomes a job for the next sender; a status is
//     classified and completes the command, unless the sender still refers to
//     its payload: then when it has let go.
//  7. Sink.Complete, and Sink.BatchEnd once per batch.
//
// Beside it: the watchdog (watch.go, tick.go), aborts and resets (recover.go),
// and the end of a session (session.go retire, retire.go): the socket is
// aborted, the sender let go, and only then everything is handed to Sink.Lost.
package iscsi
