package mount

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// head is the beginning of a device with parts put into it.
func head(parts ...part) []byte {
	b := make([]byte, headLen)
	for _, p := range parts {
		copy(b[p.off:], p.b)
	}
	return b
}

type part struct {
	off int
	b   []byte
}

const vol = "1.b.p.vol"

func ext4Super(blocks uint64, mounted bool) part {
	b, le := make([]byte, 1024), binary.LittleEndian
	le.PutUint32(b[4:], uint32(blocks))
	le.PutUint32(b[0x150:], uint32(blocks>>32))
	le.PutUint32(b[0x18:], 2)
	le.PutUint16(b[0x38:], 0xEF53)
	le.PutUint32(b[0x60:], 0x80)
	if mounted {
		le.PutUint32(b[0x2C:], 1)
	}
	return part{1024, b}
}

func xfsSuper(blocks uint64, unfinished byte) part {
	b := make([]byte, 512)
	copy(b, "XFSB")
	binary.BigEndian.PutUint32(b[4:], 4096)
	binary.BigEndian.PutUint64(b[8:], blocks)
	b[126] = unfinished
	return part{0, b}
}

func TestTheBeginningOfADeviceIsJudged(t *testing.T) {
	boot, far := part{bootPlace, intentFor(vol, Ext4)}, part{farPlace, intentFor(vol, XFS)}
	others := part{bootPlace, intentFor("other", Ext4)}
	noise := part{8192, []byte("data")}
	for name, c := range map[string]struct {
		head []byte
		want verdict
	}{
		"nothing":                         {head(), allZero},
		"data":                            {head(noise), somethingElse},
		"the last byte":                   {head(part{headLen - 1, []byte{1}}), somethingElse},
		"ext4":                            {head(ext4Super(1000, false)), fileSystem},
		"ext4 that was mounted":           {head(ext4Super(1000, true)), fileSystem},
		"XFS":                             {head(xfsSuper(1000, 0)), fileSystem},
		"intents":                         {head(boot, far), cutShort},
		"one intent in the boot block":    {head(boot, noise), cutShort},
		"one intent at the far place":     {head(far, noise), cutShort},
		"the intent of another volume":    {head(others), somethingElse},
		"ext4 whose mark is not cleared":  {head(boot, ext4Super(1000, false)), cutShort},
		"a mounted ext4 with a mark":      {head(boot, ext4Super(1000, true)), fileSystem},
		"ext4 with a file like an intent": {head(far, ext4Super(1000, false)), fileSystem},
		"XFS under way":                   {head(far, xfsSuper(1000, 1)), cutShort},
		"XFS under way, of others":        {head(xfsSuper(1000, 1)), abandoned},
		"XFS with a mark, or a file like an intent": {head(far, xfsSuper(1000, 0)), unconfirmed},
	} {
		if got, _ := judge(c.head, vol); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestADamagedIntentIsNone(t *testing.T) {
	good := intentFor(vol, Ext4)
	if !intended(good, vol) {
		t.Fatal("a good one is refused")
	}
	for i := range good {
		for _, bit := range []byte{1, 0x80} {
			b := slices.Clone(good)
			b[i] ^= bit
			if intended(b, vol) {
				t.Fatalf("byte %d may be wrong", i)
			}
		}
	}
	if intended(good[:intentLen-1], vol) || intended(nil, vol) {
		t.Fatal("a short one is accepted")
	}
}

func TestTheIntentIsWhatVersionOneWas(t *testing.T) {
	b := intentFor(vol, XFS)
	if string(b[:27]) != "csi-mpath: format under way" || b[32] != 1 || string(b[36:39]) != "xfs" ||
		binary.LittleEndian.Uint32(b[1020:]) != 0x1e29da73 {
		t.Fatalf("%q, CRC %#x: a volume with an old one would be refused", b[:40], binary.LittleEndian.Uint32(b[1020:]))
	}
}

func TestSizesOfFileSystemsAreRead(t *testing.T) {
	for _, c := range []struct {
		p    part
		want uint64
	}{
		{ext4Super(1<<33, false), 1 << 45}, {xfsSuper(1<<33, 0), 1 << 45},
	} {
		if s := readSuperblock(head(c.p)); s == nil || s.size != c.want {
			t.Errorf("%+v, want %d bytes", s, c.want)
		}
	}
	for _, p := range []part{ext4Super(0, false), xfsSuper(0, 0), ext4Super(1<<60, false), xfsSuper(1<<60, 0)} {
		if s := readSuperblock(head(p)); s != nil {
			t.Errorf("%+v was made of an impossible size", s)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add(head(ext4Super(1000, true))[:4096])
	f.Add(head(xfsSuper(1000, 1))[:4096])
	f.Fuzz(func(t *testing.T, b []byte) {
		s := readSuperblock(b)
		if s != nil && (s.size == 0 || s.size > 1<<63 || s.block < 512 || s.size%uint64(s.block) != 0) {
			t.Fatalf("%+v", s)
		}
	})
}

func FuzzIntent(f *testing.F) {
	f.Add(intentFor(vol, Ext4), vol)
	f.Fuzz(func(t *testing.T, b []byte, volume string) {
		if intended(b, volume) && !bytes.Contains(b[:intentLen], intentMagic) {
			t.Fatal("an intent without its magic")
		}
	})
}

func TestBlkidIsReadStrictly(t *testing.T) {
	for out, want := range map[string]tags{
		"": {},
		"DEVNAME=/dev/x\nTYPE=ext4\nUSAGE=filesystem\nUUID=1\n": {fsType: "ext4", usage: "filesystem"},
		"PTTYPE=gpt\nPTUUID=2\n":                                {table: "gpt"},
		"TYPE=a b\nTYPE=\nTYPE=\x1b[31m\nTYPE":                  {},
		"LABEL=TYPE=ext4\n":                                     {},
		"TYPE=" + strings.Repeat("x", 65):                       {},
	} {
		if got := readTags([]byte(out)); got != want {
			t.Errorf("%q: %+v", out, got)
		}
	}
}

func FuzzBlkid(f *testing.F) {
	f.Add([]byte("DEVNAME=/dev/x\nTYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := readTags(b).String()
		if len(s) > 3*maxTag+64 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q", s)
		}
	})
}

func TestTheKernelsTableIsRead(t *testing.T) {
	got, err := parseMountInfo([]byte("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:3 - ext3 /dev/root rw,errors=continue\n" +
		"37 35 0:30 / /with\\040space\\134 ro - tmpfs  rw\n")) // an empty source
	if err != nil {
		t.Fatal(err)
	}
	want := []Point{
		{Path: "/mnt2", Device: "98:0", Root: "/mnt1", FSType: "ext3", Source: "/dev/root"},
		{Path: `/with space\`, Device: "0:30", Root: "/", FSType: "tmpfs", ReadOnly: true},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
	if _, err := parseMountInfo([]byte("36 35 98:0 /mnt1\n")); err == nil {
		t.Fatal("half a line was accepted")
	}
}

func FuzzMountInfo(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"))
	f.Add([]byte("37 35 0:30 / /with\\040space ro - tmpfs  rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseMountInfo(b)
		if err == nil && len(p) > bytes.Count(b, []byte("\n"))+1 {
			t.Fatalf("%d mounts from %q", len(p), b)
		}
	})
}

// mangle is what the kernel does to a path (fs/proc_namespace.c).
func mangle(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(s)
}

func TestEveryPathComesBackFromTheKernelsTable(t *testing.T) {
	const letters = "ab \t\n\\#0134"
	for range 2000 {
		b := make([]byte, rand.IntN(12))
		for i := range b {
			b[i] = letters[rand.IntN(len(letters))]
		}
		if got := unescape(mangle(string(b))); got != string(b) {
			t.Fatalf("%q became %q", b, got)
		}
	}
}

func TestNothingIsDiscardedByMkfs(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{nil, []string{"-E", "nodiscard"}},
		{[]string{"-E", "stride=4", "-m", "1"}, []string{"-E", "stride=4,nodiscard", "-m", "1"}},
		{[]string{"-Ediscard"}, []string{"-Ediscard,nodiscard"}},
		{[]string{"-E", "a", "-E", "b"}, []string{"-E", "a", "-E", "b,nodiscard"}},
	} {
		in := slices.Clone(c.in)
		if got := noDiscard(in); !slices.Equal(got, c.want) || !slices.Equal(in, c.in) {
			t.Errorf("%q became %q, and was %q", c.in, got, in)
		}
	}
}

func TestAMalformedRequestIsRefused(t *testing.T) {
	good := Request{Volume: vol, Device: "/dev/x", Target: "/t", FSType: Ext4}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Request){
		"no volume":         func(r *Request) { r.Volume = "" },
		"a long volume":     func(r *Request) { r.Volume = strings.Repeat("v", MaxVolume+1) },
		"a file system":     func(r *Request) { r.FSType = "ext4\x00" },
		"a relative path":   func(r *Request) { r.Target = "t" },
		"dots":              func(r *Request) { r.Target = "/a/../b" },
		"the root":          func(r *Request) { r.Target = "/" },
		"a relative device": func(r *Request) { r.Device = "-o" },
		"an empty option":   func(r *Request) { r.MountOptions = []string{""} },
		"a control":         func(r *Request) { r.MkfsOptions = []string{"a\nb"} },
		"many options":      func(r *Request) { r.MkfsOptions = make([]string, MaxOptions+1) },
	} {
		r := good
		spoil(&r)
		if r.check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
