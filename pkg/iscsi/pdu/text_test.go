package pdu

import (
	"bytes"
	"strings"
	"testing"
)

func TestKeysAreParsedStrictly(t *testing.T) {
	good := "A=1\x00TargetName=iqn.2001-04.com.example:x\x00X-com.vendor.foo=\x00B=a=b,c\x00"
	keys, err := ParseKeys([]byte(good))
	if err != nil || len(keys) != 4 {
		t.Fatalf("%v, %v", keys, err)
	}
	if v, _ := keys.Get("B"); v != "a=b,c" {
		t.Errorf("B is %q", v)
	}
	if got := string(keys.Append(nil)); got != good {
		t.Errorf("written again: %q", got)
	}
	for name, bad := range map[string]string{
		"no final NUL": "A=1", "no '='": "A\x00", "no key": "=1\x00", "key twice": "A=1\x00A=1\x00",
		"empty pair": "A=1\x00\x00", "space in key": "A B=1\x00", "long key": strings.Repeat("k", MaxKeyLen+1) + "=1\x00",
		"long value": "A=" + strings.Repeat("v", MaxValueLen+1) + "\x00",
	} {
		if _, err := ParseKeys([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTooManyKeysAreRefused(t *testing.T) {
	var b []byte
	for i := range MaxKeys + 1 {
		b = AppendPair(b, "k"+strings.Repeat("x", i%60)+string(rune('A'+i/60)), "1")
	}
	if _, err := ParseKeys(b); err == nil {
		t.Fatal("accepted")
	}
}

func TestKeysCutAtAPDUBorderAreJoined(t *testing.T) {
	whole := []byte("TargetName=iqn.2001-04.com.example:x\x00TargetAddress=10.0.0.1:3260,1\x00")
	for cut := range whole {
		a := Assembler{Limit: len(whole)}
		if _, done, err := a.Add(whole[:cut], true); done || err != nil {
			t.Fatalf("cut %d: %v %v", cut, done, err)
		}
		got, done, err := a.Add(whole[cut:], false)
		if err != nil || !done || !bytes.Equal(got, whole) {
			t.Fatalf("cut %d: %q %v %v", cut, got, done, err)
		}
	}
	a := Assembler{Limit: len(whole) - 1}
	if _, _, err := a.Add(whole, false); err == nil {
		t.Error("no limit")
	}
}

func TestBinaryValuesInAllForms(t *testing.T) {
	seq := "000102030405060708090a0b0c0d0e0f"
	for in, want := range map[string]string{
		"0bAAECAwQFBgcICQoLDA0ODw==": seq, "0BAAECAwQFBgcICQoLDA0ODw": seq,
		"0x" + seq: seq, "0X" + strings.ToUpper(seq): seq, "0xabc": "abc0",
	} {
		got, err := ParseBinary(in)
		if err != nil || FormatBinary(got) != "0x"+want {
			t.Errorf("%s: %x, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "0x", "0b", "0b=", "12", "0xzz", "0b!!", "0bAA\nEC", "0o12", "0x" + strings.Repeat("0", 2*MaxBinary+1),
		"0b" + strings.Repeat("A", 2*MaxBinary)} {
		if _, err := ParseBinary(bad); err == nil {
			t.Errorf("%.20q accepted", bad)
		}
	}
	if b, err := ParseBinary("0x" + strings.Repeat("ab", MaxBinary)); err != nil || len(b) != MaxBinary {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestNumbersAreParsedStrictly(t *testing.T) {
	for in, want := range map[string]uint32{"0": 0, "255": 255, "0xff": 255, "0XFF": 255, "007": 7} {
		if got, err := ParseNumber(in, 255); err != nil || got != want {
			t.Errorf("%s: %d %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "-1", "+1", "256", "0x100", "0x", "1 ", "1_0", "0x_1", "NotUnderstood", "0x-1"} {
		if _, err := ParseNumber(bad, 255); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestSenseIsCutToWhatIsThere(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{
		{"", 0}, {"\x00", 0}, {"\x00\x12", 0}, {"\x00\x12abc", 3}, {"\x00\x60" + strings.Repeat("s", 18), 18},
		{"\x00\x12" + strings.Repeat("s", 18) + "response data", 18},
	} {
		if got := len(Sense([]byte(c.in))); got != c.want {
			t.Errorf("%q: %d bytes of sense, want %d", c.in, got, c.want)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add([]byte("A=1\x00B=2\x00"), "0b00")
	f.Add([]byte("A"), "0x0")
	f.Fuzz(func(t *testing.T, b []byte, v string) {
		if keys, err := ParseKeys(b); err == nil && !bytes.Equal(keys.Append(nil), b) {
			t.Fatalf("%q read as %v", b, keys)
		}
		if bin, err := ParseBinary(v); err == nil {
			if again, err := ParseBinary(FormatBinary(bin)); err != nil || !bytes.Equal(again, bin) {
				t.Fatalf("%q: %x, %x", v, bin, again)
			}
		}
		_, _ = ParseNumber(v, 10)
	})
}
