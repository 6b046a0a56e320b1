// Package wire is what the initiators share: commands of many submitters on one
// connection, out in batches and back in any order, without locks.
//
// A protocol brings a Codec, which knows PDUs; a Flow does the rest, pure: tags,
// queues, batches of iovecs, where received bytes go, who completes a command.
// A Link is the shell around one Flow: the socket, a reader and a writer.
//
// The life of an I/O, in the order the code is best read:
//
//  1. Flow.Submit (unit.go): a share of the unit's window, a tag (task.go), one
//     push into the inbox. Lock-free, allocates nothing.
//  2. Link.Kick (link.go): whoever finds the sender flag free becomes the
//     sender; everybody else leaves the work to it.
//  3. Flow.Gather (flow.go): data asked for and commands, in one batch of iovecs
//     (batch.go), encoded by the codec. Small payload is copied behind its
//     header, large goes by reference and is counted in Command.Tx. The task is
//     published to the reader.
//  4. Socket.Send, once per batch. A full socket passes the flag to the writer.
//  5. Link.read: Intake (intake.go) says where bytes go, the codec parses
//     headers. The payload of a read lands in the command's buffer.
//  6. Flow.Answer completes the command, unless the sender still refers to its
//     payload: then when it has let go.
//  7. Sink.Complete, and Sink.BatchEnd once per batch.
//
// The end of a connection: its socket is aborted, the sender let go, and only
// then everything is handed to Sink.Lost (wreck.go).
package wire
