package backend

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestASizeIsRoundedUpToTheStepOrRefused(t *testing.T) {
	p := Pool{Name: "p", Step: 4, Min: 8, Max: 101}
	for _, c := range []struct {
		size   Size
		source int64
		want   int64 // 0: ErrRange
	}{
		{Size{}, 0, 8}, {Size{Required: 1}, 0, 8}, {Size{Required: 9}, 0, 12}, {Size{Required: 100}, 0, 100},
		{Size{Required: 101}, 0, 0}, {Size{Required: math.MaxInt64}, 0, 0},
		{Size{Required: 9, Limit: 11}, 0, 0}, {Size{Required: 9, Limit: 12}, 0, 12}, {Size{Limit: 7}, 0, 0},
		{Size{}, 20, 20}, {Size{Required: 17}, 20, 20}, {Size{Required: 16}, 20, 0}, {Size{Required: 24}, 20, 24}, {Size{Limit: 16}, 20, 0},
	} {
		got, err := p.Fit(c.size, c.source)
		if got != c.want || (err != nil) != (c.want == 0) || (err != nil && !errors.Is(err, ErrRange)) {
			t.Errorf("%+v of a source of %d: got %d, %v; want %d", c.size, c.source, got, err, c.want)
		}
	}
	huge := Pool{Name: "p", Step: 4096}
	if _, err := huge.Fit(Size{Required: math.MaxInt64}, 0); !errors.Is(err, ErrRange) {
		t.Errorf("a size that cannot be rounded up: got %v", err)
	}
}

func TestInitiatorNamesAreStrict(t *testing.T) {
	good := map[Transport][]string{
		ISCSI: {"iqn.2025-01.io.csi-mpath:node:1f", "naa.5000c50012345678", "eui.02004567a425678d"},
		NVMe:  {"nqn.2014-08.org.nvmexpress:uuid:F81D4FAE-7dec-11d0-a765-00a0c91e6bf6"},
	}
	for transport, names := range good {
		for _, n := range names {
			if err := CheckInitiator(transport, n); err != nil {
				t.Errorf("%s: %v", n, err)
			}
		}
	}
	for _, n := range []string{"", "iqn.", "iqn.X", "nqn.x", "iqn.a/b", "iqn.a b", "iqn.\x00", "../iqn.a", "iqn.a\n", "iqn.\u212a", "iqn." + strings.Repeat("a", MaxInitiator)} {
		if err := CheckInitiator(ISCSI, n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v", n, err)
		}
	}
	if err := CheckInitiator("fc", "iqn.a"); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown transport: %v", err)
	}
}

// TestPagesAreTheListWhateverVanishes compares with the list itself: each page
// begins after the last entry given, which may be gone.
func TestPagesAreTheListWhateverVanishes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	key := func(k Key) Key { return k }
	for range 200 {
		var all []Key
		for range rnd.IntN(20) {
			all = append(all, Key{ID: ID{Pool: []string{"a", "a-b", "b"}[rnd.IntN(3)], Object: []string{"v", "v-1", "w"}[rnd.IntN(3)]}, Node: []string{"", "n", "n.x"}[rnd.IntN(3)]})
		}
		slices.SortFunc(all, func(a, b Key) int {
			if a.Less(b) {
				return -1
			}
			return 1
		})
		all = slices.Compact(all)
		page, kept := Page{Max: 1 + rnd.IntN(3)}, slices.Clone(all)
		var got []Key
		for {
			some, next, err := Cut(all, key, page)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, some...)
			if next == "" {
				break
			}
			page.Token = next
			all = slices.DeleteFunc(slices.Clone(all), func(k Key) bool { return k == some[len(some)-1] })
		}
		if !slices.Equal(got, kept) {
			t.Fatalf("got %v, want %v", got, kept)
		}
	}
}

func TestEveryPageEndsByTheBoundOfAllPages(t *testing.T) {
	all := make([]Key, MaxEntries+1)
	for _, most := range []int{0, MaxEntries + 1, math.MaxInt} {
		all[MaxEntries-1] = Key{ID: ID{Pool: "p", Object: "v"}}
		some, next, err := Cut(all, func(k Key) Key { return k }, Page{Max: most})
		if len(some) != MaxEntries || next == "" || err != nil {
			t.Errorf("at most %d: got %d entries, token %q, %v", most, len(some), next, err)
		}
	}
}

func FuzzTokensAreOursOrRefused(f *testing.F) {
	for _, s := range []string{"after p.v-1 ", "after p.v-1 node.1", "after p.v-1", "p.v", "after ../x ", "after p.v ../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := parseToken(s)
		if err == nil && k.token() != s {
			t.Fatalf("%q became %q", s, k.token())
		}
		if err != nil && !errors.Is(err, ErrToken) {
			t.Fatalf("%q: %v", s, err)
		}
	})
}

func FuzzIDsAreStrict(f *testing.F) {
	f.Add("p.v-1")
	f.Add("p.v.w")
	f.Add("p/../x.v")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err == nil && (id.String() != s || strings.ContainsAny(s, "/\x00 ") || strings.Contains(s, "..")) {
			t.Fatalf("%q became %v", s, id)
		}
	})
}
