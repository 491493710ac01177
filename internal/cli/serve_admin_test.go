//go:build unix

package cli_test

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAnAdminPausesAndSetsLimits(t *testing.T) {
	const key = "an-admin-key-of-mine"
	t.Setenv("ADMIN_KEY", key)
	g, _ := serveHouse(t, time.Millisecond, "--admin-key-env", "ADMIN_KEY")
	act := func(action, body string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, g.local(t)+"/ui/"+action, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Sluice-Admin-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, text := act("pause", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if text := page(t, g.local(t)+"/ui"); !strings.Contains(text, "The gateway is paused") { // though nobody called yet
		t.Error("the page does not say that the gateway is paused")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		say(t, g.url, "m", "")
	}()
	select {
	case <-done:
		t.Error("a call went through a gateway that is paused")
	case <-time.After(300 * time.Millisecond):
	}
	if status, text := act("resume", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	<-done
	if status, text := act("limits", `{"concurrent": 7}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := act("limits", `{"concurrency": 7}`); status != 400 || !strings.Contains(text, "concurrency") {
		t.Errorf("%d %s", status, text)
	}
	g.stop(t)
	said := g.stderr.String()
	for _, want := range []string{"/ui\n", "paused by the admin", "resumed by the admin", "concurrent 1 -> 7"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if strings.Contains(said, key) {
		t.Error("it says the key")
	}
}

func TestAnAdminKeyIsNotTakenFromAnywhere(t *testing.T) {
	t.Setenv("ADMIN_KEY", "short")
	for _, name := range []string{"ADMIN_KEY", "UNSET_ADMIN_KEY", "not a variable"} {
		cmd := exec.Command("sluice", "serve", "--provider", "sim", "--listen", "127.0.0.1:0", "--admin-key-env", name)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 {
			t.Errorf("%s: %v %d %s", name, err, code, out)
		}
	}
}

// page is what is answered to a browser.
func page(t *testing.T, url string) string {
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
