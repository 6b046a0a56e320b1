// Package storage holds tests of the agent's stores on a real kernel: thin pools
// of LVM, and directories on file systems with reflinks. The contract of stores is
// run on each, the contract of backends over each store and exporter, and a thin
// pool is run full under a writer.
package storage
