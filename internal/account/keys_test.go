package account

// Which lines of a file give a key cannot be seen from outside without many processes: these tests are in the package.

import (
	"strings"
	"testing"
)

func TestKeyFileYieldsTheNamedVariableAlone(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"a plain line", "A=1\nKEY=abc\n", "abc"},
		{"export and quotes", "export KEY=\"a b\"\n", "a b"},
		{"single quotes and a comment", "KEY='abc' # mine\n", "abc"},
		{"a comment behind a bare value", "KEY=abc # mine\n", "abc"},
		{"a hash inside a value", "KEY=ab#c\n", "ab#c"},
		{"the last one holds", "KEY=old\nKEY=new\n", "new"},
		{"a longer name is another", "MY_KEY=abc\nKEY2=abc\n", ""},
		{"a commented line is none", "# KEY=abc\n", ""},
		{"an equals sign in the value", "KEY=a=b==\n", "a=b=="},
		{"a long line before it", strings.Repeat("x", 70_000) + "\nKEY=abc\n", "abc"},
		{"a byte order mark and CRLF", "\ufeffKEY=abc\r\n", "abc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := keyIn(tt.file, "KEY"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzKeyFile(f *testing.F) {
	f.Add("export KEY='abc' # x\nKEY=\"\n=\nKEY")
	f.Fuzz(func(t *testing.T, file string) {
		if key := keyIn(file, "KEY"); !strings.Contains(file, key) {
			t.Errorf("key %q is not in the file %q", key, file)
		}
	})
}
