// What a plugin says about a turn: cells of code, pictures, films, tables and lines. All of it is data.
import { useState } from "preact/hooks";
import { mediaUrl, type Cell, type NoteFilm, type NotePicture, type NoteTable, type TurnNote } from "../api";
import { number, printable } from "../format";
import { MarkLegend, Picture } from "./picture";
import { LongText } from "./text";

export function Note({ run, note }: { run: string; note: TurnNote }) {
  return (
    <>
      {note.cells.map((cell, index) => (
        <CellCard run={run} cell={cell} key={index} />
      ))}
      <Pictures run={run} pictures={note.pictures} />
      <Films run={run} films={note.films} />
      {note.tables.map((table, index) => (
        <Table table={table} key={index} />
      ))}
      {note.lines.length > 0 && (
        <dl class="note">
          {note.lines.map(([name, value], index) => (
            <div key={index}>
              <dt>{printable(name)}</dt>
              <dd>{printable(value)}</dd>
            </div>
          ))}
        </dl>
      )}
    </>
  );
}

function CellCard({ run, cell }: { run: string; cell: Cell }) {
  return (
    <section class="call" aria-label="Code that was run">
      <header>
        <span class="label">code</span>
      </header>
      <div class="source">
        <LongText text={cell.code} />
      </div>
      {cell.output && (
        <>
          <span class="label">output</span>
          <div class="source output">
            <LongText text={cell.output} />
          </div>
        </>
      )}
      {cell.error && <p class="problem">{printable(cell.error)}</p>}
      <Pictures run={run} pictures={cell.pictures} />
    </section>
  );
}

function Pictures({ run, pictures }: { run: string; pictures: NotePicture[] }) {
  if (!pictures.length) return null;
  return (
    <div class="note-media">
      {pictures.map(({ name, title, marks }, index) => (
        <figure key={index}>
          <Picture run={run} name={name} marks={marks} />
          {title && <figcaption>{printable(title)}</figcaption>}
          {marks.length > 0 && <MarkLegend marks={marks} />}
        </figure>
      ))}
    </div>
  );
}

export function Films({ run, films }: { run: string; films: NoteFilm[] }) {
  if (!films.length) return null;
  return (
    <div class="note-media">
      {films.map((film) => (
        <Film run={run} film={film} key={film.name} />
      ))}
    </div>
  );
}

function Film({ run, film }: { run: string; film: NoteFilm }) {
  const [failed, setFailed] = useState(false);
  const address = mediaUrl(run, film.name);
  const title = printable(film.title || "Film");
  if (failed || !address) return <p class="no-picture">This film cannot be shown: {title}</p>;
  return (
    <figure>
      <video src={address} controls muted playsInline preload="metadata" aria-label={title} onError={() => setFailed(true)} />
      <figcaption>{title}</figcaption>
    </figure>
  );
}

function Table({ table }: { table: NoteTable }) {
  const isNumber = table.columns.map((_, index) => table.rows.every((row) => typeof row[index] === "number"));
  return (
    <div class="note-table" tabIndex={0} role="group" aria-label={printable(table.title || "Table")}>
      <table>
        {table.title && <caption>{printable(table.title)}</caption>}
        <thead>
          <tr>
            {table.columns.map((column, index) => (
              <th scope="col" class={isNumber[index] ? "number" : undefined} key={index}>
                {printable(column)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, place) => (
            <tr key={place}>
              {row.map((value, index) => (
                <td class={isNumber[index] ? "number" : undefined} key={index}>
                  {typeof value === "number" ? number(value) : printable(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
