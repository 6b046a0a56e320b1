package strictyaml

import (
	"strings"
	"testing"
)

const most = 1 << 16

func TestTheFirstErrorIsTheOneThatIsTold(t *testing.T) {
	n, err := Parse([]byte("a: {b: x, c: -1}\nd: 1"), most)
	if err != nil {
		t.Fatal(err)
	}
	if v := n.Key("a").Key("b").Number(1, 2, 0); v != 0 {
		t.Error(v)
	}
	n.Key("a").Key("c").Number(1, 2, 0)
	n.Object("a")
	if err := n.Err(); err == nil || err.Error() != `a.b: is "x", want a number 1 to 2` {
		t.Error(err)
	}
}

func TestEveryAddressIsNothingToConnectTo(t *testing.T) {
	for text, want := range map[string]string{
		`{at: "0.0.0.0"}`:                   "at: 0.0.0.0:7 is every address",
		`{at: "::", tell: "::"}`:            "tell: [::]:7 is no address to connect to",
		`{at: "::", tell: "10.0.0.1:0"}`:    "tell: 10.0.0.1:0 is no address",
		`{at: "host:1"}`:                    `at: "host:1" is neither`,
		`{at: "::", tell: "192.0.2.1:443"}`: "",
		`{at: "::1"}`:                       "",
	} {
		n, err := Parse([]byte(text), most)
		if err != nil {
			t.Fatal(err)
		}
		Door(n.Key("at"), n.Key("tell"), 7)
		switch err := n.Err(); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Whatever comes in, each reader returns what it promises, or there is an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte("a: {b: [1, x, 1Gi], c: true}\nd: /a/b"))
	f.Add([]byte("a: 1\n---\nb: 2"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Parse(b, most)
		if err != nil {
			return
		}
		for _, k := range []string{"a", "b", "c", "d"} {
			v := n.Key(k)
			for _, e := range v.List(4) {
				if s := e.Text(8); len(s) > 8 {
					t.Fatal(s)
				}
				if x := e.Number(1, 5, 3); x > 5 {
					t.Fatal(x)
				}
			}
			if p := v.AbsPath(); p != "" && p[0] != '/' && n.Err() == nil {
				t.Fatal(p)
			}
			v.Flag()
			v.Size(1 << 30)
			v.Address(80)
		}
		if err := n.Err(); err != nil && len(err.Error()) > 500 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
	})
}

func TestNamesAreTheKeysOfAMappingThatIsNotTooLarge(t *testing.T) {
	for text, want := range map[string]string{"a: {q: 1, p: 2}": "p q", "a: {}": "", "b: 1": "", "a: {p: 1, q: 2, r: 3}": "!", "a: [x]": "!", "a: x": "!"} {
		n, err := Parse([]byte(text), 100)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(n.Key("a").Names(2), " ")
		if n.Err() != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, n.Err(), want)
		}
	}
}
