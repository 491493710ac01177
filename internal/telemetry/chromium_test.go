package telemetry_test

import (
	"context"
	"fmt"
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

// overflows is a script that names what is wider than the page, or reaches beyond it.
const overflows = `(() => {
	const wide = document.documentElement.clientWidth, bad = [];
	if (document.documentElement.scrollWidth > wide) bad.push("page " + document.documentElement.scrollWidth + " > " + wide);
	for (const e of document.querySelectorAll("body *")) {
		const r = e.getBoundingClientRect();
		if (r.width > 0 && (r.right > wide + 1 || r.left < -1)) bad.push(e.tagName + " " + (e.textContent || "").trim().slice(0, 40));
	}
	for (const svg of document.querySelectorAll("svg")) {
		const frame = svg.getBoundingClientRect();
		for (const e of svg.querySelectorAll("text")) {
			const r = e.getBoundingClientRect();
			if (r.right > frame.right + 1 || r.left < frame.left - 1 || r.top < frame.top - 1 || r.bottom > frame.bottom + 1) bad.push("text of a chart: " + e.textContent);
		}
	}
	return bad;
})()`

// ask returns what an action finds out.
func ask[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	found, err := chromedp.Run(ctx, action)
	check(t, err)
	return found
}

func TestTheReportOfAStormCanBeReadInABrowser(t *testing.T) {
	ctx, complaints := browser(t)
	file := filepath.Join(t.TempDir(), "report.html")
	check(t, os.WriteFile(file, stormPage(t), 0o600))
	for _, as := range []struct {
		name  string
		width int64
		dark  string
	}{{"wide", 1200, "light"}, {"dark", 1200, "dark"}, {"phone", 360, "light"}} {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: as.dark}},
		})
		check(t, err)
		check(t, chromedp.Do(ctx, chromedp.EmulateViewport(as.width, 900), chromedp.Navigate("file://"+file)))
		text := ask(t, ctx, chromedp.Text("body"))
		bad := ask(t, ctx, chromedp.Evaluate[[]string](overflows))
		colours := ask(t, ctx, chromedp.Evaluate[[]string](`[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]`))
		if len(bad) > 0 {
			t.Errorf("%s: overflows: %s", as.name, strings.Join(bad, "; "))
		}
		for _, want := range []string{
			"of 405 items done", "of the time", "items failed", "429 responses", "bad_request", "resumes the run:",
			"sluice run questions.jsonl -o answers.jsonl", "pause", "m-0", "m-1", "Requests per minute",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page does not say %q:\n%s", as.name, want, text)
			}
		}
		if dark := fmt.Sprint(colours) == "[rgb(230, 232, 235) rgb(22, 24, 28)]"; dark != (as.dark == "dark") {
			t.Errorf("%s: colours %v", as.name, colours)
		}
		if dir := os.Getenv(pictureVar); dir != "" {
			picture := ask(t, ctx, chromedp.FullScreenshot(100))
			check(t, os.WriteFile(filepath.Join(dir, "report-"+as.name+".png"), picture, 0o600))
		}
	}
	if said := complaints(); len(said) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(said, "; "))
	}
}
