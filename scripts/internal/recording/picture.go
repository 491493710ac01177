package recording

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Measures of the picture, in pixels.
const (
	charWidth  = 8.4
	lineHeight = 20
	margin     = 18
	bar        = 26              // above the text
	hold       = 5 * time.Second // how long the last screen stands
)

// style has the colours for light and for dark pages. Where nothing moves, what is seen is the last screen, which stands first
// in the film.
const style = `
.back{fill:#f6f8fa;stroke:#d0d7de}.dot{fill:#d0d7de}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#1f2328;white-space:pre}
.command{font-weight:bold;fill:#0550ae}
@media (prefers-color-scheme:dark){.back{fill:#151b23;stroke:#3d444d}.dot{fill:#3d444d}text{fill:#e6edf3}.command{fill:#79c0ff}}
`

// Draw writes the recording as an SVG that plays it again and again, for light and dark pages. Readers that want no motion, and
// programs that show none, have its last screen.
func (rec Recording) Draw(w io.Writer) error {
	frames, err := rec.frames()
	if err != nil {
		return err
	}
	if len(frames) == 0 {
		return errors.New("nothing was recorded")
	}
	rows := 0
	for _, f := range frames {
		rows = max(rows, len(f.lines))
	}
	width := int(float64(rec.Width)*charWidth) + 2*margin
	height := rows*lineHeight + bar + margin
	last := frames[len(frames)-1]

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n", escape(rec.Title), escape(strings.Join(last.lines, "\n")))
	fmt.Fprintf(&b, "<style>%s%s</style>\n", style, film(frames, width))
	fmt.Fprintf(&b, `<clipPath id="pane"><rect x="0" y="0" width="%d" height="%d"/></clipPath>`+"\n", width, height)
	ids := texts(&b, frames)
	fmt.Fprintf(&b, `<rect class="back" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle class="dot" cx="%d" cy="15" r="5"/>`, margin+5+16*i)
	}
	b.WriteString("\n" + `<g clip-path="url(#pane)"><g id="film">` + "\n")
	for i := range frames {
		f := frames[(len(frames)-1+i)%len(frames)]
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`, i*width+margin, bar)
		for row, line := range f.lines {
			if line != "" {
				fmt.Fprintf(&b, `<use href="#%s" y="%d"/>`, ids[line], (row+1)*lineHeight-6)
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</g></g>\n</svg>\n")
	_, err = w.Write(b.Bytes())
	return err
}

// film is the motion: the frames stand side by side, the last one first, and each is moved into the picture in its time.
func film(frames []frame, width int) string {
	var b strings.Builder
	first := frames[0].at
	whole := frames[len(frames)-1].at - first + hold
	b.WriteString("@keyframes play{")
	for i, f := range frames {
		fmt.Fprintf(&b, "%.2f%%{transform:translateX(%dpx)}", 100*(f.at-first).Seconds()/whole.Seconds(), -(i+1)%len(frames)*width)
	}
	fmt.Fprintf(&b, "100%%{transform:none}}\n#film{animation:play %.1fs step-end infinite}\n", whole.Seconds())
	b.WriteString("@media (prefers-reduced-motion:reduce){#film{animation:none}}\n")
	return b.String()
}

// texts writes each line of the frames once, and returns by which id each is used.
func texts(b *bytes.Buffer, frames []frame) map[string]string {
	ids := map[string]string{}
	b.WriteString("<defs>\n")
	for _, f := range frames {
		for _, line := range f.lines {
			if line == "" || ids[line] != "" {
				continue
			}
			ids[line] = fmt.Sprintf("l%d", len(ids)+1)
			class := ""
			if strings.HasPrefix(line, "$ ") {
				class = ` class="command"`
			}
			// The length is stated, so that columns stay columns whatever the reader's font is.
			fmt.Fprintf(b, `<text id="%s"%s xml:space="preserve" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n", ids[line], class,
				float64(utf8.RuneCountInString(line))*charWidth, escape(line))
		}
	}
	b.WriteString("</defs>\n")
	return ids
}

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}
