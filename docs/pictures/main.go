// Command pictures draws a terminal's screen, as `tmux capture-pane -e -p` prints it, as an SVG:
//
//	go run ./docs/pictures COLUMNS < SCREEN > FILE
package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The cell of a character, and the space round the screen.
const cellWidth, cellHeight, margin = 8, 17, 12

// colours are those of a dark terminal, in the order of SGR 30 to 37 and 90 to 97.
var colours = []string{"#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
	"#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff"}

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// A style is what the escape sequences so far have chosen.
type style struct {
	colour    string
	bold, dim bool
}

func main() {
	columns, err := strconv.Atoi(strings.Join(os.Args[1:], " "))
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: pictures COLUMNS < SCREEN > FILE")
		os.Exit(2)
	}
	screen, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(string(screen), columns))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func draw(screen string, columns int) string {
	lines := strings.Split(strings.TrimRight(screen, "\n "), "\n")
	width, height := columns*cellWidth+2*margin, len(lines)*cellHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" `+
		`font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#c9d1d9">`+"\n"+
		`<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n", width, height, height)
	current := style{}
	for i, line := range lines {
		fmt.Fprintf(&b, `<text y="%d" xml:space="preserve">`, margin+i*cellHeight+cellHeight-4)
		column := 0
		for len(line) > 0 {
			at := sgr.FindStringSubmatchIndex(line)
			text := line
			if at != nil {
				text = line[:at[0]]
			}
			column += write(&b, text, column, current)
			if at == nil {
				break
			}
			current = current.apply(line[at[2]:at[3]])
			line = line[at[1]:]
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// write writes a piece of a line at a column, and returns its width.
func write(b *strings.Builder, text string, column int, s style) int {
	n := utf8.RuneCountInString(text)
	if strings.TrimSpace(text) == "" {
		return n
	}
	fmt.Fprintf(b, `<tspan x="%d" textLength="%d"`, margin+column*cellWidth, n*cellWidth)
	if s.colour != "" {
		fmt.Fprintf(b, ` fill="%s"`, s.colour)
	}
	if s.bold {
		b.WriteString(` font-weight="bold"`)
	}
	if s.dim {
		b.WriteString(` opacity="0.6"`)
	}
	fmt.Fprintf(b, ">%s</tspan>", html.EscapeString(text))
	return n
}

// apply applies the numbers of one escape sequence.
func (s style) apply(numbers string) style {
	for _, text := range strings.Split(numbers, ";") {
		n, _ := strconv.Atoi(text) // none is a reset
		switch {
		case n == 0:
			s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 22:
			s.bold, s.dim = false, false
		case n == 39:
			s.colour = ""
		case n >= 30 && n <= 37:
			s.colour = colours[n-30]
		case n >= 90 && n <= 97:
			s.colour = colours[n-90+8]
		}
	}
	return s
}
