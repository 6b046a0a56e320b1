package auth

import (
	"crypto/md5"  //nolint:gosec // CHAP_A=5 is what every target speaks (RFC 7143 12.1.3)
	"crypto/sha1" //nolint:gosec // CHAP_A=6 (IANA's list of PPP authentication algorithms)
	"crypto/sha256"
	"crypto/sha3"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// algorithm is a hash that CHAP is done with.
type algorithm struct {
	name   string // as open-iscsi's node.session.auth.chap_algs has it
	number string // its CHAP_A (RFC 7143 12.1.3; IANA, PPP Authentication Algorithms)
	new    func() hash.Hash
}

// algorithms are all, the strongest first: the order in which they are offered.
var algorithms = []*algorithm{
	{"SHA3-256", "8", func() hash.Hash { return sha3.New256() }},
	{"SHA256", "7", sha256.New},
	{"SHA1", "6", sha1.New},
	{"MD5", "5", md5.New},
}

// MD5 is the algorithm that every target has.
const MD5 = "MD5"

// parseAlgorithms reads a list of names; "" is all.
func parseAlgorithms(list string) ([]*algorithm, error) {
	if list == "" {
		return algorithms, nil
	}
	var out []*algorithm
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		at := slices.IndexFunc(algorithms, func(a *algorithm) bool { return strings.EqualFold(a.name, name) })
		if at < 0 || slices.Contains(out, algorithms[at]) {
			return nil, fmt.Errorf("CHAP algorithms %.60q: want some of SHA3-256, SHA256, SHA1, MD5, each once", list)
		}
		out = append(out, algorithms[at])
	}
	return out, nil
}

// algorithms are those of credentials that passed Check.
func (c *Credentials) algorithms() []*algorithm {
	list, _ := parseAlgorithms(c.Algorithms)
	return list
}

// offer is CHAP_A of a list.
func offer(list []*algorithm) string {
	var numbers []string
	for _, a := range list {
		numbers = append(numbers, a.number)
	}
	return strings.Join(numbers, ",")
}

// numbered finds the algorithm of a CHAP_A that has exactly one number.
func numbered(list []*algorithm, number string) *algorithm {
	for _, a := range list {
		if a.number == number {
			return a
		}
	}
	return nil
}

// response is the CHAP response (RFC 1994 4.1): the hash of identifier, secret and
// challenge.
func (a *algorithm) response(id byte, s Secret, challenge []byte) []byte {
	h := a.new()
	_, _ = h.Write([]byte{id})
	_, _ = h.Write([]byte(s))
	_, _ = h.Write(challenge)
	return h.Sum(nil)
}
