package gateway_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sluice-llm/sluice/internal/suite"
)

// pictureVar names the variable that says where pictures of the page are left, to be looked at.
const pictureVar = "SLUICE_PAGE_PICTURES"

// browser starts a Chromium without a window, and skips the test where there is none. complaints are what it said of pages.
func browser(t *testing.T) (ctx context.Context, complaints func() []string) {
	t.Helper()
	suite.FullOnly(t)
	path := ""
	for _, name := range []string{"chromium", "google-chrome", "chromium-browser"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium on PATH")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(2*time.Minute)) // a busy machine is slow to start it
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	check(t, chromedp.Do(ctx, chromedp.EmulateViewport(1200, 900))) // starts it: a time limit before would stop it
	var mu sync.Mutex
	var said []string
	check(t, chromedp.Listen(ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			said = append(said, ev.Entry.Text)
		case *runtime.EventExceptionThrown:
			said = append(said, ev.ExceptionDetails.Text)
		}
	}))
	ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// overflows is a script that names what is wider than the page, but for what scrolls by itself.
const overflows = `(() => {
	const wide = document.documentElement.clientWidth, bad = [];
	if (document.documentElement.scrollWidth > wide) bad.push("page " + document.documentElement.scrollWidth + " > " + wide);
	for (const e of document.querySelectorAll("main *")) {
		const r = e.getBoundingClientRect();
		if (r.width > 0 && r.right > wide + 1 && !e.closest(".wide")) bad.push(e.tagName + " " + (e.textContent || "").trim().slice(0, 40));
	}
	return bad;
})()`

// unnamedParts is a script that names what a screen reader could not tell of, or the keyboard not reach.
const unnamedParts = `(() => {
	const bad = [];
	for (const t of document.querySelectorAll("table")) if (!t.caption || !t.caption.textContent) bad.push("a table without a caption");
	for (const e of document.querySelectorAll("svg:not([aria-hidden])")) if (!e.getAttribute("aria-label")) bad.push(e.tagName + " without a name");
	for (const e of document.querySelectorAll("input")) if (e.labels.length !== 1) bad.push("a field without a label");
	for (const e of document.querySelectorAll(".wide")) if (e.tabIndex !== 0) bad.push(e.id + " scrolls, and not by keys");
	for (const e of document.querySelectorAll("section")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) bad.push("a section without a name");
	if (document.querySelectorAll("h1").length !== 1 || !document.querySelector("[role=status]")) bad.push("no heading, or no state");
	return bad;
})()`

// becomes waits until a script finds what is wanted, and fails when it does not for long.
func becomes(t *testing.T, ctx context.Context, script, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var err error
		got, err = chromedp.Run(ctx, chromedp.Evaluate[string](script))
		check(t, err)
		if strings.Contains(got, want) {
			return
		}
	}
	t.Fatalf("%s is %q, and never %q", script, got, want)
}

// fitsAndIsNamed looks at the page as a screen reader does, and at several widths, in light and dark.
func fitsAndIsNamed(t *testing.T, ctx context.Context) {
	t.Helper()
	unnamed, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](unnamedParts))
	check(t, err)
	if len(unnamed) > 0 {
		t.Errorf("who does not see the page misses: %s", strings.Join(unnamed, "; "))
	}

	for _, as := range []struct {
		name  string
		width int64
		dark  string
	}{{"wide", 1200, "light"}, {"dark", 1200, "dark"}, {"phone", 360, "light"}, {"dark-phone", 360, "dark"}} {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: as.dark}},
		})
		check(t, err)
		check(t, chromedp.Do(ctx, chromedp.EmulateViewport(as.width, 900)))
		bad, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](overflows))
		check(t, err)
		colour, err := chromedp.Run(ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
		check(t, err)
		if len(bad) > 0 {
			t.Errorf("%s: overflows: %s", as.name, strings.Join(bad, "; "))
		}
		if (colour == "rgb(22, 24, 28)") != (as.dark == "dark") {
			t.Errorf("%s: the page is %s", as.name, colour)
		}
		if dir := os.Getenv(pictureVar); dir != "" {
			picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			check(t, err)
			check(t, os.WriteFile(filepath.Join(dir, "gateway-"+as.name+".png"), picture, 0o600))
		}
	}
}

func TestTheDashboardLivesInABrowser(t *testing.T) {
	ctx, complaints := browser(t)
	shared := newScheduler(t, 2)
	cfg := configOf(t, shared, tripper(func(*http.Request) string { return "yes" }))
	_, url, local := serveAt(t, cfg)
	call := func() { fetch(t, http.MethodPost, url+"/v1/chat/completions", hello) }
	call()
	check(t, chromedp.Do(ctx, chromedp.Navigate(local+"/ui")))
	ended, waiting := `document.querySelector("#uses td:nth-of-type(3)").textContent`, `document.getElementById("n-waiting").textContent`
	becomes(t, ctx, ended, "1")
	call()
	call()
	becomes(t, ctx, ended, "3")

	check(t, shared.Pause())
	becomes(t, ctx, `document.getElementById("banner").textContent`, "Paused")
	var calls sync.WaitGroup
	calls.Go(call)
	becomes(t, ctx, waiting, "1")
	check(t, shared.Resume())
	becomes(t, ctx, ended, "4")
	calls.Wait()
	fitsAndIsNamed(t, ctx)
	if said := complaints(); len(said) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(said, "; "))
	}
}
