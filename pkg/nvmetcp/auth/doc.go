// Package auth is NVMe in-band authentication, DH-HMAC-CHAP (NVMe Base 2.1
// section 8.3.4.5), for both ends of a queue, and the text forms of the keys of
// NVMe/TCP over TLS.
//
//	host                                    controller
//	AUTH_Negotiate (hashes, groups)    -->
//	                                   <--  Challenge (C1, S1, g^x)
//	Reply (response, C2, S2, g^y)      -->
//	                                   <--  Success1 (response to C2)
//	Success2 (if it asked for proof)   -->
//
// Both ends are machines: bytes in, bytes out, randomness from a Source; no
// socket and no clock. The host's messages travel in Authentication Send, the
// controller's are fetched with Authentication Receive, so a failure of the
// controller (AUTH_Failure1) is the content of the next Receive, not a status.
//
// Secure channel concatenation (TLS with a key from this exchange) is refused.
package auth
