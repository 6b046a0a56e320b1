// Package pdu is the wire format of NVMe/TCP, both directions, without any
// state: headers, digests, strict limits. Sections cited are those of the
// NVM Express TCP Transport Specification 1.1.
//
// A PDU is a header of fixed length, its digest, padding up to the data, the
// data, and the data's digest. Integers are little-endian.
package pdu
