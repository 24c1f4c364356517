"""One self-contained html page from one or more run folders; `page.write_report` is the way in."""
