// Package nvmetcp is a user-space NVMe/TCP host (NVMe TCP Transport 1.0): one
// controller of a subsystem, with its admin queue and I/O queues, each on a
// connection of its own.
package nvmetcp
