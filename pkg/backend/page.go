package backend

import (
	"fmt"
	"strings"
)

// Key is where an entry is in a list: by ID, then, of publications, by node.
type Key struct {
	ID   ID
	Node string
}

// Less is the order of lists.
func (k Key) Less(o Key) bool {
	if k.ID != o.ID {
		return k.ID.Less(o.ID)
	}
	return k.Node < o.Node
}

// token is the page token that continues after k.
func (k Key) token() string { return "after " + k.ID.String() + " " + k.Node }

// parseToken is the inverse, strictly; ErrToken for everything else.
func parseToken(s string) (Key, error) {
	if len(s) > maxToken {
		return Key{}, fmt.Errorf("%w: %d bytes long", ErrToken, len(s))
	}
	rest, ok := strings.CutPrefix(s, "after ")
	object, node, two := strings.Cut(rest, " ")
	id, err := ParseID(object)
	if !ok || !two || err != nil || (node != "" && CheckNode(node) != nil) {
		return Key{}, fmt.Errorf("%w: %q", ErrToken, clip(s))
	}
	return Key{ID: id, Node: node}, nil
}

// Cut is one page of a list in the order of its keys, and the token of the next
// page. A token names the last entry given, not a number: entries that come and
// go meanwhile shift nothing.
func Cut[T any](all []T, key func(T) Key, page Page) ([]T, string, error) {
	if page.Max < 0 {
		return nil, "", fmt.Errorf("%w: a page of %d entries", ErrInvalid, page.Max)
	}
	if page.Token != "" {
		after, err := parseToken(page.Token)
		if err != nil {
			return nil, "", err
		}
		for len(all) > 0 && !after.Less(key(all[0])) {
			all = all[1:]
		}
	}
	most := page.Max
	if most == 0 || most > MaxEntries {
		most = MaxEntries
	}
	if len(all) <= most {
		return all, "", nil
	}
	return all[:most], key(all[most-1]).token(), nil
}
