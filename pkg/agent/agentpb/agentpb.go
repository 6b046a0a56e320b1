// Package agentpb has the messages of the storage-host agent's service, and their
// conversion to and from the types of package backend, errors included: both ends
// use it.
package agentpb

//go:generate go run ./protogen
