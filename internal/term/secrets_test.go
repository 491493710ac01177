package term

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestKeysOfTheEnvironmentAreHidden(t *testing.T) {
	const secret, path = "zq hidden+value 7", "/etc/keys/service.pem"
	t.Setenv("MY_SERVICE_TOKEN", secret)
	t.Setenv("MY_TLS_KEY", path)
	t.Setenv("MY_KEY_NAME", "ordinary words")
	var out bytes.Buffer
	s := New(nil, nil, io.Discard, &out)
	s.Errorf("%s, %s, %s\n", secret, path, "ordinary words")
	if got := out.String(); got != "***, "+path+", ordinary words\n" {
		t.Error(got)
	}
	out.Reset()
	s.Errorf("%s\n", strings.ReplaceAll(secret, " ", "+"))
	if got := out.String(); got != "***\n" {
		t.Error(got)
	}
}
