// Package mounttest has the twin in memory of a node's file systems, and the
// contract that both of them pass.
package mounttest
