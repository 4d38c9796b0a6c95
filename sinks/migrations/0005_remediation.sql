-- Why nothing is done about an incident now, and which commands were decided over a recording, for nobody to carry out.
ALTER TABLE incidents ADD COLUMN IF NOT EXISTS waits_for String;
ALTER TABLE commands ADD COLUMN IF NOT EXISTS replayed Bool;

CREATE OR REPLACE VIEW incidents_latest AS
SELECT *
FROM incidents FINAL
ORDER BY incident_id, emitted DESC, event_id DESC
LIMIT 1 BY incident_id;
