package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

func TestAPageElsewhereIsNoGatewayThatIsReady(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		fmt.Fprintln(w, "please log in")
	}))
	defer server.Close()
	var out, said strings.Builder
	code := cli.Main(t.Context(), []string{"serve", "ready", server.URL}, strings.NewReader(""), &out, &said)
	if code != 1 || out.Len() > 0 || !strings.Contains(said.String(), "is not ready: status 302") {
		t.Errorf("exit code %d, %q, and it says %s", code, &out, &said)
	}
}
