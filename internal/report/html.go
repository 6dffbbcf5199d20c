package report

import (
	"bufio"
	_ "embed"
	"io"
	"strings"

	"github.com/siderolabs/gen/xslices"
	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"
)

// The page is built from nodes, because a template calls methods by name: the linker would have to keep
// every exported method of castle. Nodes escape texts and attributes. Only style and script are not escaped:
// no text of a run may become a part of them.
var (
	//go:embed page.css
	style string
	// script shows the hint of a bar at once, and on touch; without it, the bar's <title> does.
	//go:embed page.js
	script string
)

// policy lets the page load nothing.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

// WriteHTML prints the report as one page that loads nothing from elsewhere.
func (r *Report) WriteHTML(w io.Writer) error {
	b := bufio.NewWriter(w) // a node writes each of its parts alone
	page := html.Doctype(g.Group{lines(html.HTML(html.Lang("en"), lines(head(r), body(r)))), g.Text("\n")})
	if err := page.Render(b); err != nil {
		return err
	}
	return b.Flush()
}

func head(r *Report) g.Node {
	return html.Head(lines(
		html.Meta(html.Charset("utf-8")),
		html.Meta(html.Name("viewport"), html.Content("width=device-width, initial-scale=1")),
		html.Meta(html.Name("color-scheme"), html.Content("light dark")),
		html.Meta(g.Attr("http-equiv", "Content-Security-Policy"), html.Content(policy)),
		html.Link(html.Rel("icon"), html.Href("data:,")),
		html.TitleEl(g.Text("castle "+r.Title())),
		html.StyleEl(g.Raw(style)),
	))
}

func body(r *Report) g.Node {
	return html.Body(lines(
		header(r),
		g.If(len(r.Causes) > 0 || r.Error != "", causesSection(r)),
		g.If(len(r.Stages) > 0, timelineSection(r)),
		g.If(len(r.Machines) > 0, section("Machines",
			html.Ul(list(xslices.Map(r.Machines, machineLine))))),
		g.If(len(r.Flux) > 0, fluxSection(r)),
		g.If(r.Earlier > 0, slowerSection(r)),
		g.If(len(r.Slowest) > 0, slowestSection(r)),
		g.If(len(r.Stages) > 0, section("Stages and gates", g.Map(r.Stages, stageDetails))),
		g.If(len(r.Retries) > 0, section("Retries", g.Map(r.Retries, retryBox))),
		g.If(len(r.Notices) > 0, section("Notes", g.Map(r.Notices, preBox))),
		g.If(r.Receipt != "", section("Receipt", preBox(r.Receipt))),
		html.Div(html.ID("hint"), html.Role("status")),
		html.Script(g.Raw(script)),
	))
}

func header(r *Report) g.Node {
	return html.Header(lines(
		html.H1(g.Textf("castle %s %s: ", r.Kind, r.Cluster), result(r.Result, r.Result),
			g.Text(" after "+Took(r.Seconds))),
		faint(g.Textf("Run %s, %s", r.Run, r.when()), usually("; ", r.UsualSeconds)),
		html.Ul(html.Class("totals"), list(r.Totals())),
	))
}

func causesSection(r *Report) g.Node {
	return section("Causes",
		g.Map(r.Causes, causeBox),
		g.If(r.Error != "", html.Details(g.If(len(r.Causes) == 0, open()), html.Summary(g.Text("Error")),
			preBox(r.Error))),
		g.Map(r.Diagnoses, diagnosisDetails),
		g.If(r.Resume != "", html.P(g.Text("Resume with "), html.Code(g.Text(r.Resume)))),
	)
}

func causeBox(c Cause) g.Node {
	gates := c.GatesText()
	return html.Div(html.Class("box alarm"), html.Strong(g.Text(c.Text)), lines(
		g.If(len(c.Stages) > 0, faint(g.Text("Stages: "+strings.Join(c.Stages, ", ")))),
		g.If(gates != "", faint(g.Text("Gates: "+gates))),
		pre(c.Next),
	))
}

func diagnosisDetails(d Diagnosis) g.Node {
	title := "Diagnosis of " + d.Stage
	if d.Gate != "" {
		title += ", gate " + d.Gate
	}
	return html.Details(html.Summary(g.Text(title)), html.Div(html.Class("box"), lines(
		html.P(g.Text("Waited for: "+d.Waited)),
		html.P(g.Text("Seen: "+d.Seen)),
		g.If(d.Cause != "", html.P(g.Text("Likely: "+d.Cause))),
		pre(d.Next),
		g.If(d.Folder != "", faint(g.Text("Files: "), html.Code(g.Text(d.Folder)))),
	)))
}

func timelineSection(r *Report) g.Node {
	return section("Timeline",
		html.Div(html.Class("scroll"), html.TabIndex("0"), html.Role("region"),
			html.Aria("label", "Timeline"), newChart(r).svg()),
		legend(),
		g.If(len(r.CriticalPath) > 0,
			html.P(g.Textf("Critical path, %s: %s", Took(r.CriticalSeconds), r.Path()))),
	)
}

func fluxSection(r *Report) g.Node {
	var text strings.Builder
	WriteFlux(&text, r.Flux)
	return section("Flux", preBox(text.String()))
}

func slowerSection(r *Report) g.Node {
	slower := html.P(g.Text("Nothing."))
	if len(r.Slower) > 0 {
		slower = html.Ul(list(xslices.Map(r.Slower, Slower.String)))
	}
	return section("Longer than usual",
		faint(g.Text("Compared with the medians of "+r.runsText()+".")), slower)
}

func slowestSection(r *Report) g.Node {
	column := func(name string) g.Node { return html.Th(g.Text(name)) }
	return section("Slowest resources", html.Div(html.Class("scroll"), html.Table(lines(
		html.Tr(html.Th(html.Class("number"), g.Text("time")), column("action"), column("stage"),
			column("resource")),
		g.Map(r.Slowest, resourceRow),
	))))
}

func resourceRow(x Resource) g.Node {
	return html.Tr(
		html.Td(html.Class("number"), g.Text(Took(x.Seconds))),
		html.Td(g.If(x.Failed, html.Class(failed)), g.Text(x.outcome())),
		html.Td(g.Text(x.Stage)),
		html.Td(html.Code(g.Text(x.Address))),
	)
}

func stageDetails(s Stage) g.Node {
	gates := g.Node(g.Map(s.Gates, gateLine))
	if len(s.Gates) == 0 {
		gates = faint(g.Text("No gate was waited for."))
	}
	return html.Details(
		g.If(s.Result == failed || s.Result == interrupted, open()),
		html.Summary(
			g.Textf("%s/%s: ", s.Layer, s.Name), result(s.Result, ResultText(s.Result)),
			g.Text(s.durations()),
			usually(", ", s.UsualSeconds),
		),
		html.Div(html.Class("box"), lines(pre(s.Reason), gates)),
	)
}

// durations is how long the stage took, and its parts.
func (s Stage) durations() string {
	text := ", " + Took(s.Seconds)
	var parts []string
	if s.TerraformSeconds > 0 {
		parts = append(parts, "Terraform "+Took(s.TerraformSeconds))
	}
	if s.GateSeconds > 0 {
		parts = append(parts, "gates "+Took(s.GateSeconds))
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

func gateLine(gate Gate) g.Node {
	return html.P(
		html.Code(g.Text(gate.Name)), g.Text(" "), result(gate.Result, gate.Result),
		g.Text(" after "+Took(gate.Seconds)), usually(", ", gate.UsualSeconds),
		g.If(gate.Reason != "", g.Group{html.Br(), html.Span(html.Class("faint"), g.Text(gate.Reason))}),
	)
}

func retryBox(x Retry) g.Node {
	place := strings.TrimSuffix(x.Stage+", "+x.Step, ", ")
	return html.Div(html.Class("box"), g.Text(place), html.Pre(g.Text(x.Text)))
}

// section is a part of the page with a title.
func section(title string, content ...g.Node) g.Node {
	return html.Section(lines(html.H2(g.Text(title)), g.Group(content)))
}

// lines begins a line of the page before each node, and each node of a group, so that the page can be read
// and compared. White space between these nodes has no meaning.
func lines(nodes ...g.Node) (all g.Group) {
	for _, n := range nodes {
		switch n := n.(type) {
		case nil:
		case g.Group:
			all = append(all, lines(n...)...)
		default:
			all = append(all, g.Text("\n"), n)
		}
	}
	return all
}

func list(items []string) g.Group {
	return g.Map(items, func(item string) g.Node { return html.Li(g.Text(item)) })
}

func faint(content ...g.Node) g.Node { return html.P(html.Class("faint"), g.Group(content)) }

// pre is a text with its lines; nothing if it is empty.
func pre(text string) g.Node { return g.If(text != "", html.Pre(g.Text(text))) }

func preBox(text string) g.Node { return html.Div(html.Class("box"), html.Pre(g.Text(text))) }

// result is a text in the color of a result.
func result(name, text string) g.Node { return html.Span(html.Class(name), g.Text(text)) }

// usually is a median after a separator; nothing if there is none.
func usually(separator string, seconds *float64) g.Node {
	if seconds == nil {
		return nil
	}
	return g.Text(separator + "usually " + Took(*seconds))
}

// open unfolds a <details>.
func open() g.Node { return g.Attr("open") }
