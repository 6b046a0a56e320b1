package auth

import "testing"

// BenchmarkExchange is what one queue costs both ends together.
func BenchmarkExchange(b *testing.B) {
	for g := Null; g.known(); g++ {
		b.Run(g.String(), func(b *testing.B) {
			c := mutual
			c.Groups = GroupSet(g)
			for b.Loop() {
				if err := newRig(b, c, c).run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
