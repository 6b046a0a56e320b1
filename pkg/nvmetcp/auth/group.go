package auth

import (
	"fmt"
	"math/big"
	"sync"
)

// Group is a Diffie-Hellman group identifier (NVMe Base 2.1 section
// 8.3.4.5.2). The zero value is the null group: no exchange.
type Group byte

// The groups: none, and those of RFC 7919.
const (
	Null Group = iota
	FFDHE2048
	FFDHE3072
	FFDHE4096
	FFDHE6144
	FFDHE8192
)

// groups have the bits of their prime and the X of its formula (RFC 7919
// appendix A).
var groups = []struct {
	name  string
	bits  int
	prime func() *big.Int
}{
	Null:      {name: "null"},
	FFDHE2048: {"ffdhe2048", 2048, lazyPrime(2048, 560316)},
	FFDHE3072: {"ffdhe3072", 3072, lazyPrime(3072, 2625351)},
	FFDHE4096: {"ffdhe4096", 4096, lazyPrime(4096, 5736041)},
	FFDHE6144: {"ffdhe6144", 6144, lazyPrime(6144, 15705020)},
	FFDHE8192: {"ffdhe8192", 8192, lazyPrime(8192, 10965728)},
}

// String is the name that ParseGroup takes.
func (g Group) String() string {
	if g.known() {
		return groups[g].name
	}
	return fmt.Sprintf("group %#02x", byte(g))
}

// ParseGroup reads "null" or "ffdhe2048" to "ffdhe8192".
func ParseGroup(name string) (Group, error) {
	for g := range groups {
		if groups[g].name == name {
			return Group(g), nil //nolint:gosec // six of them
		}
	}
	return 0, fmt.Errorf("group %.20q: want null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192", name)
}

func (g Group) known() bool { return int(g) < len(groups) }

// size is the length of a public value in bytes, 0 for the null group.
func (g Group) size() int { return groups[g].bits / 8 }

// lazyPrime computes 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1 when it
// is first needed.
func lazyPrime(b uint, x int64) func() *big.Int {
	return sync.OnceValue(func() *big.Int {
		p := floorOfE(b - 130)
		p.Add(p, big.NewInt(x)).Lsh(p, 64)
		one := big.NewInt(1)
		p.Add(p, new(big.Int).Lsh(one, b))
		p.Sub(p, new(big.Int).Lsh(one, b-64))
		return p.Sub(p, one)
	})
}

// floorOfE is floor(2^k e), by the series with 64 guard bits: its few thousand
// truncations make an error far below them.
func floorOfE(k uint) *big.Int {
	const guard = 64
	term := new(big.Int).Lsh(big.NewInt(1), k+guard)
	sum := new(big.Int)
	for n := int64(1); term.Sign() > 0; n++ {
		sum.Add(sum, term)
		term.Quo(term, big.NewInt(n))
	}
	return sum.Rsh(sum, guard)
}

// keyPair is one ephemeral key of a group other than null. It serves one
// exchange: math/big does not run in constant time, and one use tells little.
type keyPair struct {
	group Group
	x     *big.Int
}

func newKeyPair(g Group, src *Source) (*keyPair, error) {
	b := make([]byte, exponentBits/8)
	if err := src.Random(b); err != nil {
		return nil, err
	}
	b[0] |= 0x80 // never a short one
	return &keyPair{g, new(big.Int).SetBytes(b)}, nil
}

// public is g^x at the full length of the group.
func (k *keyPair) public() []byte {
	y := new(big.Int).Exp(big.NewInt(2), k.x, groups[k.group].prime())
	return y.FillBytes(make([]byte, k.group.size()))
}

// shared is peer^x at the full length of the group. A peer's value may come
// without its leading zeros; 0, 1, p-1 and what is not below p are refused
// (RFC 7919 section 5.1).
func (k *keyPair) shared(peer []byte) ([]byte, error) {
	size := k.group.size()
	if len(peer) == 0 || len(peer) > size {
		return nil, faultf(incorrectLength, ErrProtocol, "a value of %d bytes for %s, which has %d", len(peer), k.group, size)
	}
	y, p, one := new(big.Int).SetBytes(peer), groups[k.group].prime(), big.NewInt(1)
	if y.Cmp(one) <= 0 || y.Cmp(new(big.Int).Sub(p, one)) >= 0 {
		return nil, faultf(incorrectLength, ErrProtocol, "a degenerate value for %s", k.group)
	}
	return new(big.Int).Exp(y, k.x, p).FillBytes(make([]byte, size)), nil
}
