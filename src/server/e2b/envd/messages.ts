/**
 * Messages on the wire, in proto3's JSON or binary form. Inside, a message is always its JSON form with defaults filled in: bytes are base64, 64-bit
 * numbers are texts, of a oneof one member is there.
 */
import {
  create,
  createFileRegistry,
  type DescMessage,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import {
  FileDescriptorSetSchema,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  file_google_protobuf_timestamp as timestampFile,
} from '@bufbuild/protobuf/wkt';
import { assert } from '../../../base/index.ts';
import { EnvdError } from './envd-error.ts';
import { filesystemPackage, type PackageTable, processPackage } from './message-table.ts';

export type Encoding = 'json' | 'proto';
export type Message = Readonly<Record<string, unknown>>;

const scalars: Readonly<Record<string, Type>> = {
  string: Type.STRING,
  bytes: Type.BYTES,
  bool: Type.BOOL,
  uint32: Type.UINT32,
  sint32: Type.SINT32,
  int64: Type.INT64,
};

const registry = createFileRegistry(
  create(FileDescriptorSetSchema, {
    file: [timestampFile.proto, fileOf(processPackage), fileOf(filesystemPackage)],
  }),
);

export function decodeMessage(type: string, bytes: Uint8Array, encoding: Encoding): Message {
  const schema = schemaOf(type);
  try {
    const message = encoding === 'proto' ? fromBinary(schema, bytes) : fromJson(schema, parse(bytes), lenient);
    return toJson(schema, message, { alwaysEmitImplicit: true }) as Message;
  } catch (error) {
    const reason = error instanceof Error ? error.message.slice(0, 200) : 'not readable';
    throw new EnvdError('invalid_argument', `The message is not a ${type}: ${reason}`);
  }
}

export function encodeMessage(type: string, message: Message, encoding: Encoding): Uint8Array {
  if (encoding === 'json') return Buffer.from(JSON.stringify(message));
  const schema = schemaOf(type);
  return toBinary(schema, fromJson(schema, message as Parameters<typeof fromJson>[1]));
}

const lenient = { ignoreUnknownFields: true } as const;

function parse(bytes: Uint8Array) {
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  return text === '' ? {} : JSON.parse(text);
}

function schemaOf(type: string): DescMessage {
  const schema = registry.getMessage(type);
  assert(schema !== undefined, `there is no message ${type}`);
  return schema;
}

function fileOf(table: PackageTable) {
  return {
    name: `${table.name}.proto`,
    package: table.name,
    syntax: 'proto3',
    dependency: ['google/protobuf/timestamp.proto'],
    messageType: Object.entries(table.messages).map(([name, fields]) => messageOf(table, name, fields)),
    enumType: Object.entries(table.enums).map(([name, values]) => ({
      name,
      value: Object.entries(values).map(([text, number]) => ({ name: text, number })),
    })),
  };
}

function messageOf(table: PackageTable, name: string, text: string) {
  const words = text === '' ? [] : text.split(', ').map((field) => field.split(' '));
  // An optional field is a oneof of its own; those stand behind the real ones.
  const groups = [...new Set(words.map(([, , , group]) => group?.slice(1)).filter((group) => group !== undefined))];
  const optional = words.filter(([, , type]) => type!.endsWith('?')).map(([, field]) => `_${field}`);
  const oneofs = [...groups, ...optional];
  const field = words.map(([number, fieldName, type, group]) => {
    const oneof = group?.slice(1) ?? (type!.endsWith('?') ? `_${fieldName}` : undefined);
    return {
      name: fieldName!,
      jsonName: fieldName!.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
      number: Number(number),
      label: type!.endsWith('*') || type === 'map' ? Label.REPEATED : Label.OPTIONAL,
      ...typeOf(table, { message: name, field: fieldName!, type: type!.replace(/[*?]$/, '') }),
      ...(oneof !== undefined && { oneofIndex: oneofs.indexOf(oneof), proto3Optional: group === undefined }),
    };
  });
  const nestedType = words.filter(([, , type]) => type === 'map').map(([, fieldName]) => mapEntry(fieldName!));
  return { name, field, nestedType, oneofDecl: oneofs.map((oneof) => ({ name: oneof })) };
}

function typeOf(
  table: PackageTable,
  about: { readonly message: string; readonly field: string; readonly type: string },
) {
  const { message, field, type } = about;
  const scalar = scalars[type];
  if (scalar !== undefined) return { type: scalar };
  if (type === 'time') return { type: Type.MESSAGE, typeName: '.google.protobuf.Timestamp' };
  if (type === 'map') return { type: Type.MESSAGE, typeName: `.${table.name}.${message}.${entryName(field)}` };
  return { type: type in table.enums ? Type.ENUM : Type.MESSAGE, typeName: `.${table.name}.${type}` };
}

function mapEntry(field: string) {
  const text = { type: Type.STRING, label: Label.OPTIONAL };
  return {
    name: entryName(field),
    options: { mapEntry: true },
    field: [
      { name: 'key', jsonName: 'key', number: 1, ...text },
      { name: 'value', jsonName: 'value', number: 2, ...text },
    ],
  };
}

function entryName(field: string): string {
  return `${field[0]!.toUpperCase()}${field.slice(1)}Entry`;
}
